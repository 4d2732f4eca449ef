"""`handoff`: from an output that is complete on its device to one that its consumer has read."""

from __future__ import annotations

from contextlib import ExitStack

from omni_platforms.bench.consumer import Consumer
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forward import can_time_forwards
from omni_platforms.bench.handoff_ways import ARENA, AT_HAND, BARE, COMMON, ENGINE, READ, Ways
from omni_platforms.bench.measure import interleaved_figures
from omni_platforms.bench.rows import Case, Row, Target, rows_from
from omni_platforms.bench.segments import room_for_segments
from omni_platforms.bench.units import bytes_text
from omni_platforms.engine import MultiprocExecutor
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.waiting import use_exact_pauses
from omni_platforms.shm import Arena

NAME = "handoff"

IMAGE = 12_582_912  # 1024x1024 pixels, float32
SIZES = (IMAGE, 50_331_648, 154_140_672, 234_823_680)
"""Bytes: 1024x1024 and 2048x2048 float32, 49 frames of 512x512 and of 480x832 float32."""
_CPU_SIZES = SIZES[:3]
_PRODUCTS = 25  # 4 to 5 ms of an H200

_WORKER = "omni_platforms.bench.handoff_worker:HandoffWorker"


def run(bench: Bench) -> list[Row]:
    """Measure each size, from an output that is complete and from the end of a forward."""
    sizes = SIZES[:1] if bench.quick else _CPU_SIZES if bench.device.type == "cpu" else SIZES
    forwards = [0, _PRODUCTS] if can_time_forwards(bench.device) else [0]
    room = 4 * max(sizes)
    use_exact_pauses()  # as the threads that wait in the product
    with ExitStack() as stack:
        bench.progress("handoff: starting a consumer and a worker process")
        platform, device = bench.platform, bench.device
        arena = stack.enter_context(Arena(platform, device, cap=room, segment_bytes=room))
        consumer = stack.enter_context(Consumer(arena))
        outputs = stack.enter_context(AsyncOutputExecutor(platform, device))
        engine = stack.enter_context(_engine(bench, room))
        rows: list[Row] = []
        for nbytes in sizes:
            for products in forwards:
                bench.progress(f"handoff: {bytes_text(nbytes)}, {_behind(products)}")
                ways = Ways(bench, nbytes, products, consumer, arena, outputs, engine)
                rows += _measure(bench, ways, nbytes, products)
        return rows


def _engine(bench: Bench, room: int) -> MultiprocExecutor:
    return MultiprocExecutor(
        _WORKER,
        platform=bench.platform,
        devices=[bench.device.index or 0],
        arena_cap=room,
        arena_segment_bytes=room,
    )


def _measure(bench: Bench, ways: Ways, nbytes: int, products: int) -> list[Row]:
    free = room_for_segments()
    segments = free is None or free > 2 * nbytes
    if not segments:
        bench.warn(
            f"handoff: the common path and torch's queue were left out for {bytes_text(nbytes)}: "
            f"/dev/shm has {bytes_text(free or 0)}. Give the container more (--shm-size)"
        )
    figures = interleaved_figures(ways.all(segments), bench.rounds)
    rows: list[Row] = []
    for figure in (READ, AT_HAND):
        case: Case = {"from": _behind(products), "part": figure, "bytes": nbytes}
        targets = bench.targets(_targets(nbytes, segments))
        rows += rows_from(figures[figure], benchmark=NAME, case=case, base=BARE, targets=targets)
    return rows


def _behind(products: int) -> str:
    return "the end of a forward" if products else "a complete output"


def _targets(nbytes: int, segments: bool) -> dict[str, Target]:
    limit = Target(1.5 if nbytes == IMAGE else 1.1, "ratio at most")
    common = {IMAGE: 20.0, SIZES[-1]: 40.0}.get(nbytes)
    found = {ARENA: limit, ENGINE: limit}
    if common is not None and segments:
        found[COMMON] = Target(common, "ratio at least", base=ARENA)
    return found
