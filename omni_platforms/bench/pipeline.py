"""`pipeline`: requests through a model, and what share of the compute floor is reached.

A grid of forward time and output size. In each cell a queue of requests, where a request's time is
compared with the forwards alone, and one request at a time, where it is compared with a blocking
copy: an async path can win the one and lose the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from omni_platforms.bench.context import Bench
from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.pipeline_grid import (
    ALONE,
    COPY,
    DEVICES_CELL,
    DEVICES_TARGET,
    ENGINE,
    EXECUTOR,
    PARTS,
    QUEUE,
    SINGLE_TARGET,
    SLOW,
    Cell,
    cells,
    queue_target,
)
from omni_platforms.bench.pipeline_rig import Rig, engine
from omni_platforms.bench.pipeline_ways import Consumer, Engine
from omni_platforms.bench.rows import Row, rows_from
from omni_platforms.bench.samples import Samples
from omni_platforms.bench.units import seconds_text
from omni_platforms.engine import MultiprocExecutor

NAME = "pipeline"

_FEWEST_ROUNDS = 3
_ROUNDS_SHARE = 4  # a cell takes seconds a round: a quarter of the rounds that others get
_LENGTH = 1.25
_ONE, _TWO = "one device", "two devices"


def run(bench: Bench) -> list[Row]:
    """Measure the grid, or the workload that is asked about, and two devices where they are.

    Blocks for minutes.

    Raises `BenchError` for a wrong byte, and whatever keeps a worker from coming up.
    """
    accelerator = bench.device.type != "cpu"
    grid = list(cells(accelerator, bench.quick, bench.forward_s, bench.output_bytes))
    rounds = max(_FEWEST_ROUNDS, bench.rounds // _ROUNDS_SHARE)
    rows: list[Row] = []
    with Rig(bench, max(cell.output_bytes for cell in grid)) as rig:
        for cell in grid:
            bench.progress(
                f"{NAME}: forward {cell.forward_s * 1e3:g} ms, {cell.kernels} kernels, "
                f"output {cell.output_bytes / 1e6:.1f} MB"
            )
            for in_flight in (QUEUE, 1):
                samples = interleaved(rig.ways(cell, in_flight), rounds, warmup=1)
                rows += cell_rows(bench, cell, in_flight, samples)
                warn_of_length(bench, cell, samples[ALONE].median)
        if accelerator and bench.platform.device_count() > 1:
            bench.progress(f"{NAME}: two devices")
            rows += _two_devices(bench, rig, rounds)
    return rows


def warn_of_length(bench: Bench, cell: Cell, alone_s: float) -> None:
    """Warn where forwards did not take the time that they were made for."""
    if not 1 / _LENGTH < alone_s / cell.forward_s < _LENGTH:
        bench.warn(
            f"{NAME}: forwards of {seconds_text(cell.forward_s)} took {seconds_text(alone_s)}: the "
            "machine was busier, or idler, when they were made than when they were measured"
        )


def cell_rows(
    bench: Bench, cell: Cell, in_flight: int, samples: Mapping[str, Samples]
) -> list[Row]:
    """Return the rows of one cell: those of each part, to the base of that part."""
    rows: list[Row] = []
    for part, names in PARTS.items():
        own = {name: samples[name] for name in names if name in samples}
        base = names[0] if in_flight > 1 else next(name for name in names if name in SLOW)
        notes = {}
        if in_flight > 1:
            target = queue_target(samples[ALONE].median, samples[COPY].median)
            for name in own.keys() - {names[0], COPY}:
                share = 1 / own[name].ratios_to(own[names[0]]).median
                notes[name] = f"{100 * share:.1f} % of floor"
        else:
            target = SINGLE_TARGET
        targets = dict.fromkeys((name for name in own if name in (EXECUTOR, ENGINE)), target)
        rows += rows_from(
            own,
            benchmark=NAME,
            case=cell.case(part, in_flight),
            base=base,
            targets=bench.targets(targets) if cell.aimed else {},
            notes=notes,
        )
    return rows


def _two_devices(bench: Bench, rig: Rig, rounds: int) -> list[Row]:
    """Compare a queue a device on two devices with a queue on one; seconds a request."""
    cell = DEVICES_CELL
    count = cell.requests(QUEUE, ENGINE)
    size = cell.output_bytes
    consumer = Consumer()
    with engine(bench, [0], size) as one, engine(bench, [0, 1], size) as two:

        def timed(name: str, executor: MultiprocExecutor, devices: int) -> float:
            requests = rig.requests(cell, devices * count + 1)
            what = f"{NAME}, {name}"
            return consumer.seconds(what, Engine(executor), requests, devices * QUEUE)

        ways = {_ONE: partial(timed, _ONE, one, 1), _TWO: partial(timed, _TWO, two, 2)}
        samples = interleaved(ways, rounds, warmup=1)
    targets = bench.targets({_ONE: DEVICES_TARGET})
    case = cell.case("several devices", QUEUE)
    return rows_from(samples, benchmark=NAME, case=case, base=_TWO, targets=targets)
