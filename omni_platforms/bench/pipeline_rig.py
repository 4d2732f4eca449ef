"""What `pipeline` measures with: a model here and in each worker process, and their consumers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from omni_platforms.bench.common_path import BareCopy
from omni_platforms.bench.common_worker import CommonWorker
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forwards import Forward, Request, Work
from omni_platforms.bench.pipeline_grid import (
    ALONE,
    BLOCKING,
    COMMON,
    COPY,
    ENGINE,
    EXECUTOR,
    QUEUE,
    TORCH_QUEUE,
    WORKER_ALONE,
    WORKER_BLOCKING,
    Cell,
)
from omni_platforms.bench.pipeline_ways import (
    Blocking,
    BlockingEngine,
    Common,
    Consumer,
    Engine,
    Executor,
    TorchQueue,
    Way,
)
from omni_platforms.bench.pipeline_worker import forwards_alone
from omni_platforms.bench.segments import room_for_segments
from omni_platforms.bench.units import bytes_text
from omni_platforms.engine import MultiprocExecutor
from omni_platforms.outputs import AsyncOutputExecutor

_WORKER = "omni_platforms.bench.pipeline_worker:PipelineWorker"
_COPIES = 3
_RPC_S = 120.0
_ARENA_OUTPUTS = 10  # four on their way, what the consumer holds, and room to spare


class Rig:
    """What measuring takes: a model here and in each worker process, and their consumers."""

    def __init__(self, bench: Bench, largest_output: int) -> None:
        self.bench = bench
        self.numbers = itertools.count(1)
        self._forward = Forward(bench.platform, bench.device)
        self._works: dict[tuple[str, float], Work] = {}
        self._size = 0
        self._segments = room_for_queue(bench, largest_output)
        self._undo = ExitStack()
        with ExitStack() as undo:
            enter = undo.enter_context
            self._here = Consumer(enter(ThreadPoolExecutor(1, "bench-consumer")))
            self._parent = Consumer()
            index = bench.device.index or 0
            self._common = enter(CommonWorker(index))
            self.engine = enter(engine(bench, [index], largest_output))
            room = QUEUE * bench.platform.pinned_allocation_bytes(largest_output)
            self._outputs = enter(
                AsyncOutputExecutor(bench.platform, bench.device, max_pending_bytes=room)
            )
            self._undo = undo.pop_all()

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._undo.__exit__(kind, error, traceback)

    def ways(self, cell: Cell, in_flight: int) -> dict[str, Callable[[], float]]:
        """Return what measures each way in a cell: seconds a request."""
        self._change_size(cell.output_bytes)
        here, parent = self._here, self._parent
        ways: dict[str, tuple[Consumer, Way]] = {
            BLOCKING: (here, Blocking(self._forward)),
            EXECUTOR: (here, Executor(self._forward, self._outputs)),
            WORKER_BLOCKING: (parent, BlockingEngine(self.engine)),
            COMMON: (parent, Common(self._common)),
            TORCH_QUEUE: (parent, TorchQueue(self._common)),
            ENGINE: (parent, Engine(self.engine)),
        }

        def timed(name: str) -> Callable[[], float]:
            consumer, way = ways[name]
            count = cell.requests(in_flight, name)
            return lambda: consumer.seconds(
                f"pipeline, {name}", way, self.requests(cell, count + 1), in_flight
            )

        if not self._segments:
            del ways[COMMON], ways[TORCH_QUEUE]
        measured = {name: timed(name) for name in ways}
        if in_flight == 1:
            return {ALONE: lambda: self._alone(cell, 1), **measured}
        copy = BareCopy(self.bench.platform, self._forward(self.requests(cell, 1)[0]))
        return {
            ALONE: lambda: self._alone(cell, cell.requests(in_flight, ALONE)),
            COPY: lambda: self._copied(cell, copy),
            WORKER_ALONE: lambda: self._worker_alone(cell, in_flight),
            **measured,
        }

    def requests(self, cell: Cell, count: int) -> list[Request]:
        """Return requests whose outputs differ from all others of this run."""
        work = self._work(cell)
        return [Request(next(self.numbers), work, cell.output_bytes) for _ in range(count)]

    def _work(self, cell: Cell) -> Work:
        key = (cell.kernels, cell.forward_s)
        if key not in self._works:
            self._works[key] = self._forward.calibrated(cell.kernels, cell.forward_s)
        return self._works[key]

    def _alone(self, cell: Cell, count: int) -> float:
        requests = self.requests(cell, count + 1)
        here = self._forward, self.bench.platform, self.bench.device
        forwards_alone(*here, requests[:1])
        return forwards_alone(*here, requests[1:]) / count

    def _worker_alone(self, cell: Cell, in_flight: int) -> float:
        count = cell.requests(in_flight, WORKER_ALONE)
        requests = self.requests(cell, count + 1)
        for part in (requests[:1], requests[1:]):
            (taken,) = self.engine.collective_rpc("forwards_alone", _RPC_S, (part,))
        return float(taken) / count

    def _copied(self, cell: Cell, copy: BareCopy) -> float:
        (request,) = self.requests(cell, 1)
        output = self._forward(request)
        self.bench.platform.synchronize(self.bench.device)
        start = time.perf_counter()
        for _ in range(_COPIES):
            copy.run(output)
        return (time.perf_counter() - start) / _COPIES

    def _change_size(self, nbytes: int) -> None:
        """Let go of what is as large as the outputs of the cells before."""
        if nbytes != self._size:
            self._size = nbytes
            self._forward.forget()
            self.engine.collective_rpc("forget", _RPC_S)


def room_for_queue(bench: Bench, largest_output: int) -> bool:
    """Whether the common ways may be measured: what writes beyond /dev/shm is killed."""
    free = room_for_segments()
    if free is None or free > (QUEUE + 1) * largest_output:
        return True
    bench.warn(
        "pipeline: the common path and torch's queue were left out: /dev/shm has "
        f"{bytes_text(free)}. Give the container more (--shm-size)"
    )
    return False


def engine(
    bench: Bench,
    devices: Sequence[int],
    largest_output: int,
    worker: str = _WORKER,
    config: Any = None,
) -> MultiprocExecutor:
    """Start a worker for each device, with shared memory that need not grow."""
    room = _ARENA_OUTPUTS * largest_output
    return MultiprocExecutor(
        worker,
        config=config,
        num_workers=len(devices),
        platform=bench.platform,
        devices=devices,
        arena_segment_bytes=room,
        arena_initial_bytes=room,
    )
