"""What `pipeline` measures, and what it aims at."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.bench import pipeline
from omni_platforms.bench import pipeline_grid as grid
from omni_platforms.bench.context import Bench
from omni_platforms.bench.samples import Samples
from omni_platforms.platform.cpu import CpuPlatform

CELL = grid.Cell(0.010, 12_582_912)


def test_the_whole_grid_is_forward_time_by_output_size() -> None:
    cells = list(grid.cells(accelerator=True, quick=False))
    large = {(cell.forward_s, cell.output_bytes) for cell in cells if cell.kernels == "large"}
    assert {forward for forward, _ in large} == {0.002, 0.010, 0.040}
    assert {round(nbytes / 1e6, 1) for _, nbytes in large} == {3.1, 12.6, 50.3, 154.1}
    assert len(large) == 12
    assert any(cell.kernels == "tiny" for cell in cells)
    assert len(set(cells)) == len(cells)


@pytest.mark.parametrize("quick", [False, True])
def test_a_workload_that_is_asked_about_takes_the_place_of_the_grid(quick: bool) -> None:
    own = list(grid.cells(True, quick, forward_s=0.018, output_bytes=4096))
    assert {(cell.forward_s, cell.output_bytes) for cell in own} == {(0.018, 4096)}
    assert [cell.kernels for cell in own] == ["large", "tiny"]
    sizes = list(grid.cells(True, quick, forward_s=0.018))
    assert {cell.forward_s for cell in sizes} == {0.018}
    assert len({cell.output_bytes for cell in sizes}) == 4
    forwards = list(grid.cells(True, quick, output_bytes=4096))
    assert {cell.output_bytes for cell in forwards} == {4096}
    assert {cell.forward_s for cell in forwards} == {0.002, 0.010, 0.040}


@pytest.mark.parametrize(("alone_s", "said"), [(0.0081, 0), (0.0124, 0), (0.0079, 1), (0.0126, 1)])
def test_forwards_of_another_length_are_warned_of(alone_s: float, said: int) -> None:
    bench = Bench(CpuPlatform(), torch.device("cpu"), 1)
    pipeline.warn_of_length(bench, CELL, alone_s)
    assert len(bench.warnings) == said


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("accelerator", [False, True])
def test_targets_are_for_forwards_that_keep_the_device_busy(accelerator: bool, quick: bool) -> None:
    for cell in grid.cells(accelerator, quick):
        assert cell.aimed == (cell.kernels == "large" and cell.forward_s >= 0.010)


@given(
    st.sampled_from([0.002, 0.01, 0.04]),
    st.sampled_from([way for ways in grid.PARTS.values() for way in ways]),
    st.integers(1, 1 << 28),
)
def test_all_ways_run_the_same_requests_but_the_slow_ones_of_large_outputs(
    forward_s: float, way: str, nbytes: int
) -> None:
    cell = grid.Cell(forward_s, nbytes)
    count, others = cell.requests(grid.QUEUE, way), cell.requests(grid.QUEUE, grid.ENGINE)
    assert grid.QUEUE <= others <= 48
    if way in grid.SLOW and nbytes > 12_582_912:
        assert count == (4 if "blocking" in way else grid.QUEUE)
        assert cell.requests(1, way) == 2
    else:
        assert count == others
        assert cell.requests(1, way) == 4


@given(st.floats(1e-4, 1), st.floats(1e-6, 1))
def test_a_copy_of_more_than_a_quarter_of_the_forward_may_cost_more(
    forward_s: float, copy_s: float
) -> None:
    target = grid.queue_target(forward_s, copy_s)
    assert target.value == (1.05 if copy_s > forward_s / 4 else 1.02)
    assert target.met_by(1.0, target.value)
    assert not target.met_by(1.0, target.value + 0.001)


class Aiming(Bench):
    """A run on an accelerator, as far as targets go."""

    @property
    def aims(self) -> bool:
        return True


def rows(
    in_flight: int, executor_s: float, engine_s: float, copy_s: float = 0.001, **more: Any
) -> dict[str, Any]:
    """Return the rows of a cell by way; forwards take 10 ms, a blocking copy makes it 20."""
    seconds = {
        grid.ALONE: 0.010,
        grid.BLOCKING: 0.020,
        grid.EXECUTOR: executor_s,
        grid.WORKER_BLOCKING: 0.020,
        grid.COMMON: 0.015,
        grid.TORCH_QUEUE: 0.030,
        grid.ENGINE: engine_s,
    }
    if in_flight > 1:
        seconds |= {grid.COPY: copy_s, grid.WORKER_ALONE: 0.010}
    samples = {name: Samples((value,) * 3) for name, value in seconds.items()}
    bench = more.pop("bench", Aiming)(CpuPlatform(), torch.device("cpu"), 3)
    found = pipeline.cell_rows(bench, more.pop("cell", CELL), in_flight, samples)
    assert len(found) == len(seconds)
    return {row.way: row for row in found}


def test_a_queue_is_compared_with_the_forwards_alone_in_the_same_process() -> None:
    found = rows(grid.QUEUE, 0.01019, 0.01021)
    assert found[grid.EXECUTOR].base == grid.ALONE
    assert found[grid.ENGINE].base == found[grid.COMMON].base == grid.WORKER_ALONE
    assert (found[grid.EXECUTOR].target, found[grid.EXECUTOR].met) == (1.02, True)
    assert found[grid.ENGINE].met is False
    assert found[grid.COMMON].note == "66.7 % of floor"
    assert [row.met for row in found.values()].count(None) == len(found) - 2


def test_a_long_copy_may_cost_more() -> None:
    found = rows(grid.QUEUE, 0.0104, 0.0106, copy_s=0.0026)
    assert (found[grid.EXECUTOR].target, found[grid.EXECUTOR].met) == (1.05, True)
    assert found[grid.ENGINE].met is False


def test_a_lone_request_is_compared_with_a_blocking_copy_in_the_same_process() -> None:
    found = rows(1, 0.0201, 0.0203)
    assert found[grid.EXECUTOR].base == grid.BLOCKING
    assert found[grid.ENGINE].base == grid.WORKER_BLOCKING
    assert (found[grid.EXECUTOR].target, found[grid.EXECUTOR].met) == (1.01, True)
    assert found[grid.ENGINE].met is False
    assert found[grid.ALONE].ratio == pytest.approx(0.5)


@pytest.mark.parametrize("in_flight", [1, grid.QUEUE])
@pytest.mark.parametrize(
    "more",
    [
        {"bench": Bench},
        {"cell": grid.Cell(0.002, 12_582_912)},
        {"cell": grid.Cell(0.010, 12_582_912, "tiny")},
    ],
)
def test_nothing_is_aimed_at_elsewhere(in_flight: int, more: dict[str, Any]) -> None:
    assert {row.met for row in rows(in_flight, 1.0, 1.0, **more).values()} == {None}
