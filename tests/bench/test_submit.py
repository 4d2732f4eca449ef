"""The benchmark of `submit`: its rows, its counts, and wrong bytes that leave no figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.bench import submit_background, submit_cost, submit_loops, submit_steady
from omni_platforms.bench.common_path import CommonPath, Copy
from omni_platforms.bench.consuming import Usage
from omni_platforms.bench.context import Bench
from omni_platforms.bench.rows import Row
from omni_platforms.bench.submit_steady import Standing
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.outputs.future import OutputFuture
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.simulator import Simulation


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work: these tests are about what is measured, not about how long it takes."""
    monkeypatch.setattr(submit_cost, "_QUICK_CALLS", 3)
    monkeypatch.setattr(submit_loops, "_QUICK_STEPS", 8)
    monkeypatch.setattr(submit_background, "_QUICK_BYTES", 1 << 17)
    monkeypatch.setattr(submit_background, "_QUICK_KERNELS", 8)
    monkeypatch.setattr(submit_steady, "_QUICK_OUTPUTS", 40)


def cpu() -> Bench:
    return Bench(CpuPlatform(), torch.device("cpu"), rounds=1, quick=True)


def on(sim: Simulation) -> Bench:
    platform = sim.platform
    return Bench(platform, platform.resolve_device(), rounds=1, quick=True)


def check_rows(rows: list[Row], parts: int, ways: set[str]) -> None:
    assert len({row.case["part"] for row in rows}) == parts
    assert {row.way for row in rows} == ways
    assert all(row.rounds == 1 for row in rows)
    assert {row.met for row in rows} == {None}, "only real accelerators claim targets"


def test_calls_of_few_and_many_leaves() -> None:
    rows = submit_cost.call_rows(cpu())
    submits = {f"submit, {n} {'leaf' if n == 1 else 'leaves'}" for n in (1, 2, 4, 8)}
    others = {"blocking .cpu(), 1 leaf", "common async path, 1 leaf", "submit, each further leaf"}
    check_rows(rows, 4, submits | others)
    by_way = {row.way: row for row in rows if row.case["part"] == rows[0].case["part"]}
    each = by_way["submit, each further leaf"].seconds
    eight, one = by_way["submit, 8 leaves"].seconds, by_way["submit, 1 leaf"].seconds
    assert each == pytest.approx((eight - one) / 7)


def test_loops_with_every_way_of_handing_over() -> None:
    rows = submit_loops.loop_rows(cpu())
    check_rows(
        rows,
        2,
        {
            submit_loops.FLOOR,
            submit_loops.BLOCKING,
            "common async path, results after the loop",
            submit_loops.AFTER,
            submit_loops.LAG_ONE,
            "submit, result at once",
        },
    )
    bases = {row.way: row.base for row in rows if "kernels" in str(row.case["part"])}
    assert bases[submit_loops.AFTER] == submit_loops.BLOCKING
    assert bases[submit_loops.LAG_ONE] == submit_loops.FLOOR


def test_launches_beside_outputs_in_flight() -> None:
    rows = submit_background.background_rows(cpu())
    assert len(rows) == 5
    bases = {row.way: row.base for row in rows}
    assert bases[submit_background.NOBODY] == submit_background.NOTHING
    assert bases["ours in one process"] == submit_background.NOBODY
    assert [row.note for row in rows if row.way.startswith("ours")] == [
        "copied by submit here: nothing is in flight"
    ] * 2


def test_steady_state_is_counted_in_both_processes() -> None:
    bench = cpu()
    submit_steady.count_steady_state(bench)
    cases = {(str(count.case["part"]), count.case["output_bytes"]) for count in bench.counts}
    assert len(cases) == 3
    names = {count.name for count in bench.counts}
    assert {"new segments", "page faults", "page faults of the consumer", "memory"} <= names
    assert [count.value for count in bench.counts if count.name == "new segments"] == [0]
    assert {count.met for count in bench.counts} == {None}


def test_memory_that_outputs_leave_is_seen_by_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that keeps what it was given: 40 outputs of 1 MiB are 10,240 pages."""
    kept: list[Any] = []

    class Keeping(AsyncOutputExecutor):
        def submit(self, output: Any, *args: Any, **options: Any) -> OutputFuture:
            kept.append(output.clone())
            return super().submit(output, *args, **options)

    monkeypatch.setattr(submit_steady, "AsyncOutputExecutor", Keeping)
    monkeypatch.setattr(submit_steady, "Consumer", mock.MagicMock(side_effect=KeyboardInterrupt))
    bench = cpu()
    with pytest.raises(KeyboardInterrupt):  # what is in one process comes first, and is enough
        submit_steady.count_steady_state(bench)
    large = {c.name: c.value for c in bench.counts if c.case["output_bytes"] == 1 << 20}
    assert large["memory"] > 30 << 20
    assert large["page faults"] > 5_000


def standing(**changes: Any) -> Standing:
    usual: dict[str, Any] = {
        "here": Usage(100, 1000),
        "there": Usage(10, 100),
        "pinned_allocations": 3,
        "device_free": 5000,
        "segments": 1,
    }
    return Standing(**{**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        ({}, set()),
        ({"here": Usage(120, 1000 + (1 << 20))}, set()),
        ({"pinned_allocations": 4}, {"pinned allocations"}),
        ({"segments": 2}, {"new segments"}),
        ({"device_free": 4999}, {"device memory"}),
        ({"here": Usage(201, 1000)}, {"page faults"}),
        ({"here": Usage(100, 1001 + (1 << 20))}, {"memory"}),
        ({"there": Usage(111, 100)}, {"page faults of the consumer"}),
        ({"there": Usage(10, 101 + (1 << 20))}, {"memory of the consumer"}),
    ],
)
def test_what_ten_thousand_outputs_leave_is_held_to_its_limit(
    changes: dict[str, Any], over: set[str]
) -> None:
    counts = submit_steady._counts({}, 10_000, standing(), standing(**changes), aims=True)
    assert len(counts) == 7
    assert {count.name for count in counts if not count.met} == over


def test_what_is_not_known_is_not_counted() -> None:
    nothing = standing(there=None, pinned_allocations=None, device_free=None, segments=None)
    counts = submit_steady._counts({}, 10, nothing, nothing, aims=False)
    assert [count.name for count in counts] == ["page faults", "memory"]
    assert {(count.limit, count.met) for count in counts} == {(None, None)}


# Wrong bytes ------------------------------------------------------------------


class Late(AsyncOutputExecutor):
    """Gives each caller the future of the output before: right bytes, of the wrong round."""

    last: OutputFuture | None = None

    def submit(self, output: Any, *args: Any, **options: Any) -> OutputFuture:
        future = super().submit(output, *args, **options)
        last, self.last = self.last or future, future
        return last


@pytest.mark.parametrize(
    ("module", "run"),
    [
        (submit_cost, submit_cost.call_rows),
        (submit_loops, submit_loops.loop_rows),
        (submit_background, submit_background.background_rows),
        (submit_steady, submit_steady.count_steady_state),
    ],
)
def test_outputs_of_another_round_leave_no_figure(
    monkeypatch: pytest.MonkeyPatch, module: Any, run: Callable[[Bench], object]
) -> None:
    monkeypatch.setattr(module, "AsyncOutputExecutor", Late)
    with pytest.raises(BenchError, match="elements are wrong in round"):
        run(cpu())


# Simulated devices, whose copies are as late as they can be -------------------

PARTS = (submit_cost.call_rows, submit_loops.loop_rows, submit_background.background_rows)


@pytest.mark.parametrize("run", PARTS)
def test_late_copies_are_waited_for(sim: Simulation, run: Callable[[Bench], object]) -> None:
    sim.reset("lazy")
    assert run(on(sim))


@pytest.mark.parametrize("run", PARTS)
def test_a_copy_that_nobody_waits_for_is_seen(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, run: Callable[[Bench], object]
) -> None:
    sim.reset("lazy")
    monkeypatch.setattr(Copy, "wait", lambda copy: copy.host)
    with pytest.raises(BenchError, match="elements are wrong in round"):
        run(on(sim))


def test_a_side_stream_that_does_not_wait_is_seen(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.reset("lazy")
    path = CommonPath(sim.platform, sim.platform.resolve_device())
    monkeypatch.setattr(path, "_platform", path._platform)
    monkeypatch.setattr(type(sim.platform), "stream_wait_event", lambda *_: None)
    with pytest.raises(BenchError, match="common async path"):
        submit_loops.loop_rows(on(sim))
