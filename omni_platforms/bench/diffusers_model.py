"""`--model diffusers`: requests through a real pipeline of the diffusers library, small and random.

The text is encoded, four steps are denoised and the picture is decoded, by the library's own code.
A checksum, computed on the device behind the picture, comes along with it: the reader compares it
with one of the bytes that arrived, so that it does not matter how a device's kernels round.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from omni_platforms.bench.context import Bench
from omni_platforms.bench.forwards import Request, Work
from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.pipeline_grid import (
    ALONE,
    BLOCKING,
    ENGINE,
    EXECUTOR,
    PARTS,
    QUEUE,
    WORKER_ALONE,
    WORKER_BLOCKING,
)
from omni_platforms.bench.pipeline_rig import engine
from omni_platforms.bench.pipeline_ways import (
    Blocking,
    BlockingEngine,
    Consumer,
    Engine,
    Executor,
    Way,
)
from omni_platforms.bench.pipeline_worker import PipelineWorker, forwards_alone
from omni_platforms.bench.reading import PAGE_WORDS
from omni_platforms.bench.rows import Case, Row, rows_from
from omni_platforms.bench.samples import Samples
from omni_platforms.bench.small_diffusers import small_pipeline
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.interface import OmniPlatform

NAME = "diffusers"

_WORKER = "omni_platforms.bench.diffusers_model:DiffusersWorker"
_PROMPT = "a harbour at dawn"
_NEEDED = ("diffusers", "transformers")
_STEPS = 4
_SINGLE_REQUESTS = 3
_ROUNDS_SHARE = 3
_FEWEST_ROUNDS = 3
_RPC_S = 300.0


class Shape(NamedTuple):
    """What decides the size of the picture: the latents' side and the decoder's levels."""

    latents: int
    levels: int

    @property
    def side(self) -> int:
        """Pixels a side."""
        return int(self.latents * 2 ** (self.levels - 1))

    @property
    def nbytes(self) -> int:
        """Bytes of the picture: three colours, float32."""
        return 3 * self.side * self.side * 4


_SMALL, _LARGE = Shape(32, 2), Shape(128, 4)


class Diffusers:
    """The pipeline on one device. Not for several threads at once."""

    def __init__(self, device: torch.device, shape: Shape) -> None:
        self._pipeline = small_pipeline(shape.latents, shape.levels).to(device)
        self._pipeline.set_progress_bar_config(disable=True)

    @torch.no_grad()
    def __call__(self, request: Request) -> dict[str, torch.Tensor]:
        """Return the request's picture, float32 `[3, side, side]`, and its checksum, int64."""
        noise = torch.Generator("cpu").manual_seed(request.number)
        picture = self._pipeline(
            _PROMPT, num_inference_steps=request.work.count, generator=noise, output_type="pt"
        ).images[0]
        picture = picture.float().contiguous()
        return {"picture": picture, "checksum": checksum(picture) + request.number}

    def forget(self) -> None:
        """Keep everything: nothing is as large as the outputs."""


def checksum(picture: torch.Tensor) -> torch.Tensor:
    """Return a sum, int64 `[]`, of a float32 tensor's bits in which every place counts."""
    bits = picture.reshape(-1).view(torch.int32).to(torch.int64)
    places = torch.arange(1, 2 * len(bits), 2, device=bits.device)
    return (bits * places).sum()


class ChecksumReader:
    """Reads pictures, and keeps the last one for its checksum."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last: tuple[dict[str, torch.Tensor], Request] | None = None

    def read(self, output: dict[str, torch.Tensor], request: Request) -> None:
        """Read a word of every page."""
        picture = output["picture"].reshape(-1)
        if picture.nbytes != request.output_bytes:
            raise BenchError(
                f"{self._what}: a picture has {picture.nbytes} bytes instead of "
                f"{request.output_bytes}; no figure of this run counts"
            )
        float(picture[::PAGE_WORDS].sum())
        self._last = (output, request)

    def check_last(self) -> None:
        """Compare the checksum of the last picture with its device's. Raises `BenchError`."""
        if self._last is None:
            raise BenchError(f"{self._what}: no output arrived; no figure of this run counts")
        (output, request), self._last = self._last, None
        if int(checksum(output["picture"])) + request.number != int(output["checksum"]):
            raise BenchError(
                f"{self._what}: picture {request.number} holds other bytes than its device wrote; "
                "no figure of this run can be believed: run omni-platforms doctor"
            )


class DiffusersWorker(PipelineWorker):
    """The same in a worker process; `config` is the shape."""

    def model(self, platform: OmniPlatform, device: torch.device, config: Any) -> Diffusers:
        """Return the pipeline on the worker's device."""
        return Diffusers(device, Shape(*config))


def run(bench: Bench) -> list[Row]:
    """Measure a queue of requests and one at a time. Blocks for a minute or so.

    Raises `BenchError` without the extra `diffusers`, and for a wrong byte.
    """
    require_diffusers()
    shape = _SMALL if bench.quick or bench.device.type == "cpu" else _LARGE
    rounds = max(_FEWEST_ROUNDS, bench.rounds // _ROUNDS_SHARE)
    rows: list[Row] = []
    bench.progress(f"{NAME}: building a pipeline of {shape.side} x {shape.side} pixels")
    with Rig(bench, shape) as rig:
        for in_flight in (QUEUE, 1):
            bench.progress(f"{NAME}: {in_flight} in flight")
            samples = interleaved(rig.ways(in_flight), rounds, warmup=1)
            rows += _rows(samples, shape, in_flight)
    return rows


def require_diffusers() -> None:
    """Raise `BenchError` with the remedy where the extra is missing. Cheap; imports nothing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise BenchError(
            f"--model diffusers needs {' and '.join(missing)}, not installed here: "
            "run pip install 'omni-platforms[diffusers]'"
        )


class Rig:
    """The pipeline here and in a worker process, and what takes their outputs."""

    def __init__(self, bench: Bench, shape: Shape) -> None:
        self._bench = bench
        self._shape = shape
        self._numbers = itertools.count(1)
        self._pipeline = Diffusers(bench.device, shape)
        with ExitStack() as undo:
            thread = undo.enter_context(ThreadPoolExecutor(1, "bench-consumer"))
            self._here = Consumer(thread, ChecksumReader)
            self._parent = Consumer(reader=ChecksumReader)
            devices = [bench.device.index or 0]
            self._engine = undo.enter_context(
                engine(bench, devices, shape.nbytes, _WORKER, tuple(shape))
            )
            self._outputs = undo.enter_context(AsyncOutputExecutor(bench.platform, bench.device))
            self._undo = undo.pop_all()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *error: Any) -> None:
        self._undo.__exit__(*error)

    def ways(self, in_flight: int) -> dict[str, Callable[[], float]]:
        """Return what measures each way: seconds a request."""
        count = _SINGLE_REQUESTS if in_flight == 1 else QUEUE
        ways: dict[str, tuple[Consumer, Way]] = {
            BLOCKING: (self._here, Blocking(self._pipeline)),
            EXECUTOR: (self._here, Executor(self._pipeline, self._outputs)),
            WORKER_BLOCKING: (self._parent, BlockingEngine(self._engine)),
            ENGINE: (self._parent, Engine(self._engine)),
        }

        def timed(name: str) -> float:
            consumer, way = ways[name]
            return consumer.seconds(f"{NAME}, {name}", way, self._requests(count + 1), in_flight)

        measured = {name: partial(timed, name) for name in ways}
        if in_flight == 1:
            return {**measured}
        return {
            ALONE: partial(self._alone, count),
            WORKER_ALONE: partial(self._worker_alone, count),
            **measured,
        }

    def _requests(self, count: int) -> list[Request]:
        work = Work("large", _STEPS)
        return [Request(next(self._numbers), work, self._shape.nbytes) for _ in range(count)]

    def _alone(self, count: int) -> float:
        here = self._bench.platform, self._bench.device
        return forwards_alone(self._pipeline, *here, self._requests(count)) / count

    def _worker_alone(self, count: int) -> float:
        requests = self._requests(count)
        (taken,) = self._engine.collective_rpc("forwards_alone", _RPC_S, (requests,))
        return float(taken) / count


def _rows(samples: dict[str, Samples], shape: Shape, in_flight: int) -> list[Row]:
    rows: list[Row] = []
    for part, names in PARTS.items():
        own = {name: samples[name] for name in names if name in samples}
        case: Case = {
            "part": part,
            "in_flight": in_flight,
            "pixels": shape.side,
            "steps": _STEPS,
            "output_bytes": shape.nbytes,
        }
        rows += rows_from(own, benchmark=NAME, case=case, base=next(iter(own)))
    return rows
