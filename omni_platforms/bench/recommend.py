"""`--recommend`: measure this machine for some seconds and say which settings to use."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from typing import Any

from omni_platforms.bench.advice import BY_FORWARD, Handover, Machine, Workload, advise
from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.common_path import BareCopy, blocking_copy
from omni_platforms.bench.context import Bench
from omni_platforms.bench.machine import load_warning, machine, simulated_warning, versions
from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.report import SCHEMA_VERSION
from omni_platforms.bench.units import bytes_text, seconds_text
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.shm import Arena
from omni_platforms.shm.allocator import round_up
from omni_platforms.shm.memory_left import memory_left

FORWARDS_S = (0.002, 0.010, 0.040)
OUTPUTS = (3_145_728, 12_582_912, 50_331_648)
"""The workloads that are looked at when none is named."""

_ARENA_BYTES = 64 << 20
_ARENA_TRIALS = 3
_TIMEOUT_S = 60.0


def recommend(bench: Bench) -> dict[str, Any]:
    """Measure, and return the advice for each workload, ready for JSON.

    A forward time or a size that `bench` does not name means some usual ones. Blocks for some
    seconds. Raises `BenchError` for a wrong byte, and what the arena raises where there is no
    memory for it.
    """
    facts = machine(bench.platform, bench.device)
    for warning in filter(None, (load_warning(facts), simulated_warning(facts))):
        bench.warn(warning)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    sizes = OUTPUTS if bench.output_bytes is None else (bench.output_bytes,)
    forwards = FORWARDS_S if bench.forward_s is None else (bench.forward_s,)
    room = bench.platform.pinned_allocation_bytes(max(sizes))
    with AsyncOutputExecutor(bench.platform, bench.device, max_pending_bytes=room) as outputs:
        stats = outputs.stats()
        here = Machine(
            asynchronous=stats.mode == "async",
            reason=stats.reason,
            arena_s_per_byte=_arena_s_per_byte(bench),
            memory_left=memory_left().nbytes,
        )
        handovers = [handover(bench, outputs, nbytes) for nbytes in sizes]
    found = [advise(here, each, Workload(forward)) for each in handovers for forward in forwards]
    return {
        "schema_version": SCHEMA_VERSION,
        "date": date,
        "machine": {**facts, **asdict(here)},
        "versions": versions(),
        "handovers": [_with_rates(each) for each in handovers],
        "advice": [each.as_dict() for each in found],
        "warnings": list(bench.warnings),
    }


def handover(bench: Bench, outputs: AsyncOutputExecutor, nbytes: int) -> Handover:
    """Measure what handing over one output of `nbytes` costs. Checks every byte."""
    bench.progress(f"recommend: output {bytes_text(nbytes)}")
    pattern = Pattern(nbytes)
    base = pattern.base_on(bench.device)
    bare = BareCopy(bench.platform, base)
    submits: list[float] = []
    numbers = itertools.count(1)

    def lone(value: Any) -> Any:
        start = time.perf_counter()
        future = outputs.submit(value)
        submits.append(time.perf_counter() - start)
        return future.result(_TIMEOUT_S)

    def timed(what: str, way: Callable[[Any], Any]) -> float:
        number = next(numbers)
        value = stamp(base, number)
        bench.platform.synchronize(bench.device)
        start = time.perf_counter()
        found = way(value)
        taken = time.perf_counter() - start
        pattern.check(found, number, f"recommend, {what}")
        return taken

    ways = {"copy": bare.run, "blocking": blocking_copy, "executor": lone}
    measured = {name: partial(timed, name, way) for name, way in ways.items()}
    samples = interleaved(measured, bench.rounds)
    return Handover(
        output_bytes=nbytes,
        copy_s=samples["copy"].median,
        blocking_s=samples["blocking"].median,
        submit_s=statistics.median(submits),
        lone_s=samples["executor"].median,
        pinned_bytes=bench.platform.pinned_allocation_bytes(nbytes),
        block_bytes=round_up(nbytes),
    )


def _arena_s_per_byte(bench: Bench) -> float:
    """Return what it takes to make shared memory and to register it with the device."""
    bench.progress(f"recommend: shared memory of {bytes_text(_ARENA_BYTES)}")
    times = []
    for _ in range(_ARENA_TRIALS):
        start = time.perf_counter()
        arena = Arena(bench.platform, bench.device, cap=_ARENA_BYTES, segment_bytes=_ARENA_BYTES)
        times.append(time.perf_counter() - start)
        arena.close()
    return statistics.median(times) / _ARENA_BYTES


def _with_rates(handover: Handover) -> dict[str, Any]:
    return {
        **asdict(handover),
        "copy_bytes_per_s": handover.output_bytes / handover.copy_s,
        "blocking_bytes_per_s": handover.output_bytes / handover.blocking_s,
    }


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield a document of `recommend` as lines for people."""
    facts = document["machine"]
    yield f"{facts['platform']}: {facts['device_name']}; {facts['cpu']}, {facts['cores']} cores"
    for each in document["handovers"]:
        yield ""
        yield from _handover_lines(each)
        size = each["output_bytes"]
        yield from _advice_lines([a for a in document["advice"] if a["output_bytes"] == size])
    yield ""
    for warning in document["warnings"]:
        yield f"warning: {warning}"
    yield (
        "name your own workload with --forward-ms and --output-bytes; `omni-platforms bench "
        "pipeline` with the same options measures it"
    )


def _handover_lines(each: dict[str, Any]) -> Iterator[str]:
    yield f"an output of {bytes_text(each['output_bytes'])}"
    yield (
        f"  bare pinned copy {seconds_text(each['copy_s'])} "
        f"({bytes_text(each['copy_bytes_per_s'])}/s), "
        f"blocking .cpu() {seconds_text(each['blocking_s'])} "
        f"({bytes_text(each['blocking_bytes_per_s'])}/s)"
    )
    yield (
        f"  submit {seconds_text(each['submit_s'])} on the calling thread, "
        f"submit(...).result() {seconds_text(each['lone_s'])}"
    )


def _advice_lines(advices: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what depends on the forward for each, and the other settings once."""
    for advice in advices:
        forward = f"  forward {seconds_text(advice['forward_s'])}: "
        for setting in advice["settings"]:
            if setting["name"] in BY_FORWARD:
                yield forward + _setting_text(setting)
                forward = " " * len(forward)
    rest = {
        setting["name"]: setting
        for advice in advices
        for setting in advice["settings"]
        if setting["name"] not in BY_FORWARD
    }
    for setting in rest.values():
        yield "  " + _setting_text(setting)


def _setting_text(setting: dict[str, Any]) -> str:
    value = "leave it" if setting["value"] is None else setting["value"]
    return f"{setting['name']} {value}: {setting['reason']}"
