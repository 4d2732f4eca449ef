"""What an audit costs a loop of 1 ms steps, on an accelerator. Prints a table, and JSON last.

Two loops: one that keeps the device busy for about 1 ms a step, one whose host
needs about 1 ms a step to launch small kernels. Each reads three numbers a step and makes
ten copies on the device. The ways take turns, so that clocks drift alike for all. The
profiler's turns come last: it leaves hooks of its own in the process.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from omni_platforms.audit import SyncAudit, step
from omni_platforms.platform.selection import current_platform

STEPS = 100
LOOPS = {"device-bound": 1 << 24, "host-bound": 1 << 10}  # elements of a kernel
Ways = dict[str, "dict[str, Any] | None"]
AUDITS: Ways = {
    "no audit": None,
    "counts": {"detail": "counts"},
    "full": {"detail": "full"},
}
PROFILES: Ways = {
    "no audit": None,
    "profile": {"detail": "counts", "profile": True},
}


def make_step(size: int, kernels: int) -> Callable[[], None]:
    """Return a step of `kernels` elementwise kernels, ten copies on the device, three reads."""
    device = current_platform().device_type
    x, y = torch.ones(size, device=device), torch.zeros(size, device=device)
    small = torch.ones(4, device=device)

    def run() -> None:
        for _ in range(kernels):
            torch.add(x, 1.0, out=y)
        for _ in range(10):
            small.to(torch.float16)
        small.sum().item()
        bool((small > 2).any())
        small[0].item()

    return run


def fitted(size: int, seconds: float = 1e-3) -> Callable[[], None]:
    """Return a step that takes about `seconds`, by trying how many kernels that are."""
    kernels = 10
    for _ in range(6):
        run = make_step(size, kernels)
        once(run, None, 20)
        took = once(run, None, 50)
        kernels = max(1, round(kernels * seconds / took))
    return make_step(size, kernels)


def once(run: Callable[[], None], options: dict[str, Any] | None, steps: int = STEPS) -> float:
    """Return seconds a step; entering and leaving the audit is not counted."""
    audit = contextlib.nullcontext() if options is None else SyncAudit(**options)
    current_platform().synchronize()
    with audit:
        start = time.perf_counter()
        for _ in range(steps):
            with step():
                run()
        took = time.perf_counter() - start
    current_platform().synchronize()
    return took / steps


def measure(run: Callable[[], None], ways: Ways, rounds: int) -> dict[str, dict[str, float]]:
    """Return what each way but the first costs; prints a line for each."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, options in ways.items():
            times[way].append(once(run, options))
    base, *_ = times.values()
    found = {}
    for way, taken in times.items():
        median = statistics.median(taken)
        ratios = [a / b - 1 for a, b in zip(taken, base, strict=True)]
        print(
            f"  {way:9} {median * 1e3:7.3f} ms ({min(taken) * 1e3:.3f} to "
            f"{max(taken) * 1e3:.3f})  {statistics.median(ratios):+.1%} of no audit"
        )
        found[way] = {
            "step_s": median,
            "shortest_s": min(taken),
            "longest_s": max(taken),
            "median_overhead": statistics.median(ratios),
        }
    return found


def main() -> None:
    """Measure both loops."""
    found: dict[str, dict[str, float]] = {}
    for ways, rounds in ((AUDITS, 25), (PROFILES, 5)):
        for name, size in LOOPS.items():
            run = fitted(size)
            print(name, flush=True)
            for way, figures in measure(run, ways, rounds).items():
                found.setdefault(f"{name}, {way}", figures)
    print(json.dumps({"device": current_platform().device_name(), "torch": torch.__version__}))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
