"""Whether ten thousand outputs leave anything behind: allocations, page faults, memory."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from omni_platforms.bench.check import Pattern, stamp
from omni_platforms.bench.consumer import Consumer
from omni_platforms.bench.consuming import Job, Usage, usage
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forward import Producer
from omni_platforms.bench.rows import Case, Count
from omni_platforms.outputs import AsyncOutputExecutor, OutputFuture
from omni_platforms.shm import Arena

NAME = "submit"
SMALL_BYTES, LARGE_BYTES = 2048, 1 << 20
_OUTPUTS, _CPU_OUTPUTS, _QUICK_OUTPUTS = 10_000, 2_000, 300
_LAG = 64
_SEGMENT_BYTES = 64 << 20

_FAULTS_AN_OUTPUT = 0.01
_FLAT_BYTES = 1 << 20
_TIMEOUT_S = 60.0
_PINNED_ALLOCATIONS = "num_host_alloc"

Run = Callable[[int], None]
"""Hands so many outputs over, and checks each."""


class Standing(NamedTuple):
    """What the processes and the device hold at one moment; `None` where it is not known."""

    here: Usage
    there: Usage | None
    pinned_allocations: int | None
    device_free: int | None
    segments: int | None


def count_steady_state(bench: Bench) -> None:
    """Run outputs until the pools are filled, then as many again, and add what the latter left."""
    full = _CPU_OUTPUTS if bench.device.type == "cpu" else _OUTPUTS
    outputs = _QUICK_OUTPUTS if bench.quick else full
    for nbytes in (SMALL_BYTES, LARGE_BYTES):
        with AsyncOutputExecutor(bench.platform, bench.device) as executor:
            run = _in_one_process(bench, executor, nbytes)
            _count(bench, "in one process", nbytes, outputs, run)
    with ExitStack() as stack:
        arena = stack.enter_context(
            Arena(bench.platform, bench.device, cap=_SEGMENT_BYTES, segment_bytes=_SEGMENT_BYTES)
        )
        consumer = stack.enter_context(Consumer(arena))
        run = _to_another_process(bench, arena, consumer)
        _count(bench, "to another process", LARGE_BYTES, outputs, run, arena, consumer)


def _count(
    bench: Bench,
    where: str,
    nbytes: int,
    outputs: int,
    run: Run,
    arena: Arena | None = None,
    consumer: Consumer | None = None,
) -> None:
    part = f"steady state over {outputs:,} outputs, {where}"
    bench.progress(f"submit: {part}")
    run(outputs)
    before = _standing(bench, arena, consumer)
    run(outputs)
    after = _standing(bench, arena, consumer)
    case: Case = {"part": part, "output_bytes": nbytes}
    bench.counts.extend(_counts(case, outputs, before, after, bench.aims))


def _standing(bench: Bench, arena: Arena | None, consumer: Consumer | None) -> Standing:
    gc.collect()
    on_cpu = bench.device.type == "cpu"  # whose memory is everybody's
    memory = None if on_cpu else bench.platform.memory_info(bench.device)
    pinned = bench.platform.host_memory_stats() or {}
    return Standing(
        usage(),
        None if consumer is None else consumer.usage(),
        pinned.get(_PINNED_ALLOCATIONS),
        None if memory is None else memory.free,
        None if arena is None else arena.stats().segments,
    )


def _counts(case: Case, outputs: int, before: Standing, after: Standing, aims: bool) -> list[Count]:
    """Return a figure for everything that is known at both moments."""
    faults = outputs * _FAULTS_AN_OUTPUT
    grown: list[tuple[str, float | None, str, float]] = [
        ("pinned allocations", _grown(before, after, "pinned_allocations"), "allocations", 0),
        ("new segments", _grown(before, after, "segments"), "segments", 0),
        ("device memory", _shrunk(before, after), "bytes more", 0),
        ("page faults", after.here.faults - before.here.faults, "faults", faults),
        ("memory", after.here.resident - before.here.resident, "bytes more", _FLAT_BYTES),
    ]
    if before.there is not None and after.there is not None:
        there = after.there.faults - before.there.faults
        grown.append(("page faults of the consumer", there, "faults", faults))
        there = after.there.resident - before.there.resident
        grown.append(("memory of the consumer", there, "bytes more", _FLAT_BYTES))
    return [
        Count(
            NAME,
            case,
            name,
            value,
            unit,
            limit=limit if aims else None,
            met=value <= limit if aims else None,
        )
        for name, value, unit, limit in grown
        if value is not None
    ]


def _grown(before: Standing, after: Standing, field: str) -> int | None:
    then, now = getattr(before, field), getattr(after, field)
    return None if then is None or now is None else now - then


def _shrunk(before: Standing, after: Standing) -> int | None:
    free = _grown(before, after, "device_free")
    return None if free is None else -free


def _in_one_process(bench: Bench, executor: AsyncOutputExecutor, nbytes: int) -> Run:
    """Return what submits outputs and takes each when some newer ones are under way."""
    pattern = Pattern(nbytes)
    base = pattern.base_on(bench.device)
    lag = _LAG if nbytes == SMALL_BYTES else 4

    def run(outputs: int) -> None:
        waiting: deque[tuple[int, OutputFuture]] = deque()
        for seed in range(outputs + lag):
            if seed < outputs:
                waiting.append((seed, executor.submit(stamp(base, seed))))
            if seed >= lag:
                made, future = waiting.popleft()
                pattern.check(future.result(_TIMEOUT_S), made, "submit, steady state")
                del future

    return run


def _to_another_process(bench: Bench, arena: Arena, consumer: Consumer) -> Run:
    """Return what sends outputs through the arena, one after the other."""
    producer = Producer(bench.platform, bench.device, LARGE_BYTES)

    def run(outputs: int) -> None:
        for seed in range(outputs):

            def send(seed: int = seed) -> float:
                value, started = producer.complete(seed)
                consumer.send((False, arena.pack(value, _TIMEOUT_S).data))
                return started

            consumer.take(Job("arena", "the arena, steady state", LARGE_BYTES, seed), send)

    return run
