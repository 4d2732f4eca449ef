"""Loops with a small output a step: bound by their launches, and bound by the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from time import perf_counter

import torch
from torch import Tensor

from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.common_path import CommonPath, blocking_copy
from omni_platforms.bench.context import Bench
from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.rows import Case, Row, Target, rows_from
from omni_platforms.outputs import AsyncOutputExecutor

NAME = "submit"
OUTPUT_BYTES = 2048
FLOOR, BLOCKING = "kernels alone", "blocking .cpu() each step"
AFTER, LAG_ONE = "submit, results after the loop", "submit, result of the step before"

_KERNELS = 10
_STEPS, _QUICK_STEPS = 400, 60
_PRODUCT, _CPU_PRODUCT = 4096, 96

Outputs = Iterator[Tensor]
Way = Callable[[Outputs], list[Tensor]]


def loop_rows(bench: Bench) -> list[Row]:
    """Return the time of a step, by what is done with its output."""
    no_slower = Target(1.0, "ratio at most", base=BLOCKING)
    rows: list[Row] = []
    for part, forward, targets in (
        ("a step of ten small kernels", small_kernels(bench), {AFTER: no_slower}),
        ("a step of one matrix product", matrix_product(bench), {}),
    ):
        bench.progress(f"submit: {part}")
        case: Case = {"part": part, "output_bytes": OUTPUT_BYTES}
        with ExitStack() as stack:
            loop = Loop(bench, forward)
            ways = {name: loop.timed(name, way) for name, way in _ways(bench, stack).items()}
            rows += rows_from(
                interleaved(ways, bench.rounds),
                benchmark=NAME,
                case=case,
                base=FLOOR,
                targets=bench.targets(targets),
            )
    return rows


def small_kernels(bench: Bench, count: int = _KERNELS) -> Callable[[], object]:
    """Return a forward of `count` kernels of a few microseconds each."""
    scratch = torch.zeros(512, dtype=torch.int32, device=bench.device)

    def forward() -> None:
        for _ in range(count):
            scratch.add_(1)

    return forward


def matrix_product(bench: Bench) -> Callable[[], object]:
    """Return a forward of one product, which keeps the device busy for longer than its launch."""
    size = _PRODUCT if bench.aims else _CPU_PRODUCT  # a simulated device computes on the CPU
    dtype = torch.float32 if bench.device.type == "cpu" else torch.bfloat16
    a = torch.randn(size, size, dtype=dtype, device=bench.device)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, a, out=out)


def _ways(bench: Bench, stack: ExitStack) -> dict[str, Way]:
    """Return the ways. Each has an executor of its own: one learns from how it is asked."""
    common = CommonPath(bench.platform, bench.device)

    def executor() -> AsyncOutputExecutor:
        return stack.enter_context(AsyncOutputExecutor(bench.platform, bench.device))

    after, lag_one, at_once = executor(), executor(), executor()
    return {
        FLOOR: _run_only,
        BLOCKING: lambda outputs: [blocking_copy(output) for output in outputs],
        "common async path, results after the loop": lambda outputs: _common(common, outputs),
        AFTER: lambda outputs: _after(after, outputs),
        LAG_ONE: lambda outputs: _lag_one(lag_one, outputs),
        "submit, result at once": lambda outputs: [
            at_once.submit(output).result() for output in outputs
        ],
    }


def _run_only(outputs: Outputs) -> list[Tensor]:
    deque(outputs, maxlen=0)
    return []


def _common(common: CommonPath, outputs: Outputs) -> list[Tensor]:
    started = [common.start(output) for output in outputs]
    return [copy.wait() for copy in started]


def _after(executor: AsyncOutputExecutor, outputs: Outputs) -> list[Tensor]:
    futures = [executor.submit(output) for output in outputs]
    executor.drain(60.0)
    return [future.result() for future in futures]


def _lag_one(executor: AsyncOutputExecutor, outputs: Outputs) -> list[Tensor]:
    values, last = [], executor.submit(next(outputs))
    for output in outputs:
        future = executor.submit(output)
        values.append(last.result())
        last = future
    return [*values, last.result()]


class Loop:
    """Steps of one forward and one small output; each way is timed over all of them and checked."""

    def __init__(self, bench: Bench, forward: Callable[[], object]) -> None:
        self._platform, self._device = bench.platform, bench.device
        self._forward = forward
        self._steps = _QUICK_STEPS if bench.quick else _STEPS
        self._pattern = Pattern(OUTPUT_BYTES)
        self._base = self._pattern.base_on(bench.device)
        self._made = 0

    def timed(self, name: str, way: Way) -> Callable[[], float]:
        """Return what runs the loop once and returns the seconds a step."""

        def run() -> float:
            self._platform.synchronize(self._device)
            first = self._made
            start = perf_counter()
            values = way(self._outputs())
            self._platform.synchronize(self._device)
            taken = perf_counter() - start
            for number, value in enumerate(values):
                self._pattern.check(value, first + number, name)
            return taken / self._steps

        return run

    def _outputs(self) -> Outputs:
        for _ in range(self._steps):
            self._forward()
            output = stamp(self._base, self._made)
            self._made += 1
            yield output
