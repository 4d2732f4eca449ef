"""`tokens`: thousands of tiny outputs a second, as steps of a language model make them.

A step is ten small kernels (launching them is the limit) or one matrix product (the device is),
then the ids of its sequences, 8 bytes each, and optionally their log-probabilities, 4 bytes each.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from omni_platforms.bench.common_path import blocking_copy
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forwards import Forward, Work
from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.rows import Case, Row, rows_from
from omni_platforms.bench.samples import Samples
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor

NAME = "tokens"

ALONE = "kernels alone"
TOLIST = "blocking .tolist()"
CPU = "blocking .cpu()"
LAG_ONE = "executor, result of the step before"
DRAIN = "executor, drain() at the end"
WAYS = (TOLIST, CPU, LAG_ONE, DRAIN)

VOCABULARY = 50_021
"""How many ids there are."""
_SMALL_KERNELS = 10
_PRODUCT_S = 200e-6
_DRAIN_S = 60.0
_STEPS = 300
_QUICK_STEPS = 50
# Sequences, and whether log-probabilities come along.
_SIZES = ((1, False), (8, False), (64, False), (64, True))
_QUICK_SIZES = ((64, True),)


@dataclass(frozen=True)
class Steps:
    """A run of steps of one kind; `first` is the number of the first one."""

    work: Work
    sequences: int
    logprobs: bool
    count: int
    first: int = 0


class Model:
    """What a language model's steps are to their host: kernels, and a few bytes each."""

    def __init__(self, bench: Bench) -> None:
        self._forward = Forward(bench.platform, bench.device)
        self._device = bench.device
        self._rows: dict[int, torch.Tensor] = {}

    def kinds(self) -> dict[str, Work]:
        """Return the two kinds of step, by name. Blocks to see how long a product takes."""
        return {
            "launch-bound": Work("tiny", _SMALL_KERNELS),
            "device-bound": self._forward.calibrated("large", _PRODUCT_S),
        }

    def step(self, steps: Steps, number: int) -> dict[str, torch.Tensor]:
        """Enqueue one step; return its ids, int64, and logprobs, float32, `[sequences]` each."""
        self._forward.compute(steps.work)
        rows = self._rows.get(steps.sequences)
        if rows is None:
            rows = self._rows[steps.sequences] = torch.arange(
                steps.sequences, dtype=torch.int64, device=self._device
            )
        ids = rows + number % VOCABULARY
        return {"ids": ids, "logprobs": ids * -0.5} if steps.logprobs else {"ids": ids}


Values = Mapping[str, "torch.Tensor | list[int] | list[float]"]
"""What one step gave, on the host."""
Loop = Callable[[Model, Steps], "list[Values]"]


def run(bench: Bench) -> list[Row]:
    """Measure the ways in each case. Blocks for seconds (quick) or about a minute.

    Raises `BenchError` when a way gave a wrong number.
    """
    model = Model(bench)
    kinds = model.kinds()
    rows: list[Row] = []
    executor = partial(AsyncOutputExecutor, bench.platform, bench.device)
    with executor() as lagging, executor() as draining:
        measured = {ALONE: _alone, **loops(lagging, draining)}
        for kind, work in kinds.items():
            for sequences, logprobs in _QUICK_SIZES if bench.quick else _SIZES:
                bench.progress(f"{NAME}: {kind}, {sequences} sequences")
                count = _QUICK_STEPS if bench.quick else _STEPS
                steps = Steps(work, sequences, logprobs, count)
                samples = _measured(bench, model, measured, steps)
                rows += _rows(samples, kind, steps)
    return rows


def loops(lagging: AsyncOutputExecutor, draining: AsyncOutputExecutor) -> dict[str, Loop]:
    """Return every way that brings the steps' values to the host, by name.

    Two ways have an executor each: an executor learns how soon its outputs are asked for.
    """
    return {
        TOLIST: _tolist,
        CPU: _cpu,
        LAG_ONE: partial(_lag_one, lagging),
        DRAIN: partial(_drain, draining),
    }


def _measured(
    bench: Bench, model: Model, ways: Mapping[str, Loop], steps: Steps
) -> dict[str, Samples]:
    numbers = itertools.count(step=steps.count)  # no run of steps has the ids of another

    def timed(name: str) -> float:
        now = replace(steps, first=next(numbers))
        bench.platform.synchronize(bench.device)
        start = time.perf_counter()
        values = ways[name](model, now)
        bench.platform.synchronize(bench.device)
        taken = time.perf_counter() - start
        if name != ALONE:
            check(name, now, values)
        return taken / steps.count

    return interleaved({name: partial(timed, name) for name in ways}, bench.rounds)


def check(name: str, steps: Steps, values: list[Values]) -> None:
    """Compare every number of every step. Raises `BenchError` for a wrong or a missing one."""
    numbers = torch.arange(steps.first, steps.first + steps.count) % VOCABULARY
    ids = numbers[:, None] + torch.arange(steps.sequences)
    expected = {"ids": ids, "logprobs": ids * -0.5} if steps.logprobs else {"ids": ids}
    for key, right in expected.items():
        found = torch.stack([torch.as_tensor(value[key]) for value in values])
        if not torch.equal(found.to(right.dtype), right):
            raise BenchError(
                f"{NAME}, {name}: {key} of a step differ from what its kernels wrote; no figure of "
                "this run can be believed: run omni-platforms doctor"
            )


def _rows(samples: Mapping[str, Samples], kind: str, steps: Steps) -> list[Row]:
    case: Case = {
        "loop": kind,
        "sequences": steps.sequences,
        "output_bytes": steps.sequences * (12 if steps.logprobs else 8),
    }
    notes = {
        name: f"{steps.sequences / own.median:,.0f} tokens a second"
        + (
            ""
            if name in (ALONE, CPU)
            else f"; {own.ratios_to(samples[CPU]).median:.2f} times .cpu()"
        )
        for name, own in samples.items()
    }
    return rows_from(samples, benchmark=NAME, case=case, base=ALONE, notes=notes)


# The ways ------------------------------------------------------------------------


def _stepped(model: Model, steps: Steps) -> Iterator[dict[str, torch.Tensor]]:
    for number in range(steps.first, steps.first + steps.count):
        yield model.step(steps, number)


def _alone(model: Model, steps: Steps) -> list[Values]:
    for _ in _stepped(model, steps):
        pass
    return []


def _tolist(model: Model, steps: Steps) -> list[Values]:
    return [
        {name: value.tolist() for name, value in output.items()}
        for output in _stepped(model, steps)
    ]


def _cpu(model: Model, steps: Steps) -> list[Values]:
    return [
        {name: blocking_copy(value) for name, value in output.items()}
        for output in _stepped(model, steps)
    ]


def _lag_one(outputs: AsyncOutputExecutor, model: Model, steps: Steps) -> list[Values]:
    """Ask for each step's result when the next one is launched, as an engine does."""
    values: list[Values] = []
    before = None
    for output in _stepped(model, steps):
        future = outputs.submit(output)
        if before is not None:
            values.append(before.result())
        before = future
    return values if before is None else [*values, before.result()]


def _drain(outputs: AsyncOutputExecutor, model: Model, steps: Steps) -> list[Values]:
    """Ask for nothing until all steps are launched."""
    futures = [outputs.submit(output) for output in _stepped(model, steps)]
    outputs.drain(_DRAIN_S)
    return [future.result() for future in futures]
