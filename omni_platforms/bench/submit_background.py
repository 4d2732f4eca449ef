"""What threads in the background cost a thread that launches a thousand small kernels."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from torch import Tensor

from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.common_path import CommonPath
from omni_platforms.bench.context import Bench
from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.rows import Row, Target, rows_from
from omni_platforms.bench.submit_loops import small_kernels
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.shm import Arena

NAME = "submit"
NOTHING, NOBODY = "nothing in flight", "a copy that nobody waits for"
_KERNELS, _QUICK_KERNELS = 1000, 200
_BYTES, _QUICK_BYTES = 234_881_024, 12_582_912  # 4.3 ms of an H200, about as long as the launches
_STEPS, _QUICK_STEPS = 3, 2

Start = Callable[[Tensor], Callable[[], Any]]
"""Starts to hand an output over; what it returns waits for it and returns the value, if it may."""


def background_rows(bench: Bench) -> list[Row]:
    """Return how long the launches take beside copies in flight and the threads that wait for them.

    Handing over comes before the clock and the result behind it: only what others do
    to the launching thread meanwhile counts. The base of what has a target is a copy that nobody
    waits for: it takes the bus and the caches as well, and no thread.
    """
    small = bench.quick or bench.device.type == "cpu"  # where nothing is in flight anyway
    nbytes = _QUICK_BYTES if small else _BYTES
    kernels = _QUICK_KERNELS if bench.quick else _KERNELS
    part = f"launching {kernels:,} small kernels, an output in flight"
    bench.progress(f"submit: {part}")
    note = "" if bench.device.type != "cpu" else "copied by submit here: nothing is in flight"
    with ExitStack() as stack:
        starts = _starts(bench, stack, nbytes)
        launches = Launches(bench, nbytes, small_kernels(bench, kernels))
        samples = interleaved(
            {name: launches.timed(name, start) for name, start in starts.items()}, bench.rounds
        )
    aim = Target(1.02, "ratio at most", base=NOBODY)
    ours = [name for name in starts if name.startswith("ours")]
    return rows_from(
        samples,
        benchmark=NAME,
        case={"part": part, "output_bytes": nbytes},
        base=NOTHING,
        targets=bench.targets(dict.fromkeys(ours, aim)),
        notes=dict.fromkeys(ours, note),
    )


def _starts(bench: Bench, stack: ExitStack, nbytes: int) -> dict[str, Start]:
    outputs = stack.enter_context(AsyncOutputExecutor(bench.platform, bench.device))
    sizes = {"segment_bytes": 2 * nbytes, "cap": 4 * nbytes}
    arena = stack.enter_context(Arena(bench.platform, bench.device, **sizes))
    pool = stack.enter_context(ThreadPoolExecutor(1, "bench-waits"))
    common = CommonPath(bench.platform, bench.device)

    def in_one_process(value: Tensor) -> Callable[[], Any]:
        return outputs.submit(value).result

    def in_the_arena(value: Tensor) -> Callable[[], Any]:
        waiting = pool.submit(arena.start(value).wait)
        return lambda: arena.discard(waiting.result())

    def in_common(value: Tensor) -> Callable[[], Any]:
        waiting: Future[Tensor] = pool.submit(common.start(value).wait)
        return waiting.result

    return {
        NOTHING: lambda value: lambda: None,
        NOBODY: lambda value: common.start(value).wait,
        "common async path, a thread in the driver's wait": in_common,
        "ours in one process": in_one_process,
        "ours, the arena and a thread that waits": in_the_arena,
    }


class Launches:
    """Times the launches of some steps, with an output handed over in front of each."""

    def __init__(self, bench: Bench, nbytes: int, forward: Callable[[], object]) -> None:
        self._platform, self._device = bench.platform, bench.device
        self._forward = forward
        self._steps = _QUICK_STEPS if bench.quick else _STEPS
        self._pattern = Pattern(nbytes)
        self._base = self._pattern.base_on(bench.device)
        self._seed = 0

    def timed(self, name: str, start: Start) -> Callable[[], float]:
        """Return what runs the steps once and returns the seconds that one step's launches take."""
        return lambda: sum(self._step(name, start) for _ in range(self._steps)) / self._steps

    def _step(self, name: str, start: Start) -> float:
        self._seed += 1
        value = stamp(self._base, self._seed)
        self._platform.synchronize(self._device)
        finish = start(value)
        begun = perf_counter()
        self._forward()
        taken = perf_counter() - begun
        result = finish()
        if isinstance(result, Tensor):
            self._pattern.check(result, self._seed, name)
        return taken
