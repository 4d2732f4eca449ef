"""The time that one call of `submit` takes on its thread, for outputs of few and many leaves."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any

from torch import Tensor

from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.common_path import CommonPath, Copy, blocking_copy
from omni_platforms.bench.context import Bench
from omni_platforms.bench.measure import interleaved_figures
from omni_platforms.bench.rows import Row, Target, rows_from
from omni_platforms.bench.samples import Samples
from omni_platforms.outputs import AsyncOutputExecutor

NAME = "submit"
LEAF_BYTES = 2048
LEAVES = (1, 2, 4, 8)
_CALLS = 400
_QUICK_CALLS = 50
_KERNELS = 10

Output = Tensor | list[Tensor]

_ONE, _EACH = Target(15e-6, "seconds at most"), Target(3e-6, "seconds at most")
_FURTHER = "submit, each further leaf"
_BLOCKING = "blocking .cpu(), 1 leaf"


def call_rows(bench: Bench) -> list[Row]:
    """Return what one call costs, in a tight loop and between kernels."""
    rows: list[Row] = []
    with ExitStack() as stack:
        calls = Calls(bench, stack)
        for part, kernels in (
            ("calls in a tight loop", 0),
            ("calls between ten kernels", _KERNELS),
        ):
            bench.progress(f"submit: {part}")
            figures = interleaved_figures(_ways(calls, kernels), bench.rounds)
            for word, found in figures.items():
                rows += _rows(bench, f"{part}, {word}", found)
    return rows


def _ways(calls: Calls, kernels: int) -> dict[str, Callable[[], Mapping[str, float]]]:
    ways = {
        _BLOCKING: lambda: _summary(calls.of_blocking(1, kernels)),
        "common async path, 1 leaf": lambda: _summary(calls.of_common(1, kernels)),
    }
    for count in LEAVES:
        ways[_way(count)] = _submitting(calls, count, kernels)
    return ways


def _submitting(calls: Calls, leaves: int, kernels: int) -> Callable[[], Mapping[str, float]]:
    return lambda: _summary(calls.of_submit(leaves, kernels))


def _summary(times: list[float]) -> Mapping[str, float]:
    return {"median call": statistics.median(times), "mean": statistics.mean(times)}


def _rows(bench: Bench, part: str, found: dict[str, Samples]) -> list[Row]:
    few, many = found[_way(LEAVES[0])].times, found[_way(LEAVES[-1])].times
    more = LEAVES[-1] - LEAVES[0]
    further = Samples(tuple((b - a) / more for a, b in zip(few, many, strict=True)))
    of = partial(rows_from, benchmark=NAME, case={"part": part, "leaf_bytes": LEAF_BYTES})
    return [
        *of(found, base=_BLOCKING, targets=bench.targets({_way(1): _ONE})),
        *of({_FURTHER: further}, base=None, targets=bench.targets({_FURTHER: _EACH})),
    ]


def _way(leaves: int) -> str:
    return f"submit, {leaves} {'leaf' if leaves == 1 else 'leaves'}"


class Calls:
    """Times calls one by one; each batch of calls is checked when it is over.

    An output of one leaf is a tensor, others are lists. Each number of leaves has an executor
    of its own, since an executor learns how it is used.
    """

    def __init__(self, bench: Bench, stack: ExitStack) -> None:
        self._bench = bench
        self._executors = {
            leaves: stack.enter_context(AsyncOutputExecutor(bench.platform, bench.device))
            for leaves in LEAVES
        }
        self._common = CommonPath(bench.platform, bench.device)
        self._pattern = Pattern(LEAF_BYTES)
        self._base = self._pattern.base_on(bench.device)
        self._scratch = self._base.clone()
        self._count = _QUICK_CALLS if bench.quick else _CALLS
        self._seed = 0

    def of_submit(self, leaves: int, kernels: int) -> list[float]:
        """Return the seconds of each `submit` of an output of `leaves` tensors."""
        executor = self._executors[leaves]
        times, futures = self._timed(leaves, kernels, executor.submit)
        executor.drain(60.0)
        self._check("submit", [future.result(60.0) for future in futures])
        return times

    def of_blocking(self, leaves: int, kernels: int) -> list[float]:
        """Return the seconds of each blocking copy of `leaves` tensors."""
        times, values = self._timed(leaves, kernels, _copy_all)
        self._check("blocking .cpu()", values)
        return times

    def of_common(self, leaves: int, kernels: int) -> list[float]:
        """Return the seconds that it takes to start each common copy of `leaves` tensors."""
        times, started = self._timed(leaves, kernels, self._start_all)
        self._check("common async path", [[copy.wait() for copy in copies] for copies in started])
        return times

    def _timed(
        self, leaves: int, kernels: int, call: Callable[[Output], Any]
    ) -> tuple[list[float], list[Any]]:
        made = [self._output(leaves) for _ in range(self._count)]
        self._bench.platform.synchronize(self._bench.device)
        times, results = [], []
        for output in made:
            for _ in range(kernels):
                self._scratch.add_(1)
            start = perf_counter()
            result = call(output)
            times.append(perf_counter() - start)
            results.append(result)
        return times, results

    def _output(self, leaves: int) -> Output:
        self._seed += 1
        made = [stamp(self._base, self._seed + leaf) for leaf in range(leaves)]
        return made[0] if leaves == 1 else made

    def _start_all(self, output: Output) -> list[Copy]:
        return [self._common.start(leaf) for leaf in _leaves(output)]

    def _check(self, what: str, values: list[Output]) -> None:
        """Compare each output with what was made last: output by output, leaf by leaf."""
        first = self._seed - len(values) + 1
        for number, output in enumerate(values):
            for leaf, value in enumerate(_leaves(output)):
                self._pattern.check(value, first + number + leaf, what)


def _leaves(output: Output) -> list[Tensor]:
    return [output] if isinstance(output, Tensor) else output


def _copy_all(output: Output) -> list[Tensor]:
    return [blocking_copy(leaf) for leaf in _leaves(output)]
