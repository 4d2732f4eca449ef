"""What `explore` tells a person: the missing edge, the lines that asked for it, the timeline."""

from __future__ import annotations

import gc
import re
import time
import weakref

import pytest
import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator import Simulation
from omni_platforms.simulator.timeline import Timeline
from tests.simulator import stream_bugs, test_races
from tests.simulator.stream_bugs import D, current


def line_of(text: str, file: str = stream_bugs.__file__) -> int:
    """The number of the only line of `file` that holds `text`."""
    with open(file, encoding="utf-8") as source:
        (number,) = [at for at, line in enumerate(source, 1) if text in line]
    return number


def test_a_missing_wait_is_named_with_both_lines_and_the_remedy(sim: Simulation) -> None:
    found = sim.explore(lambda: stream_bugs.one_buffer_too_few(False))
    (race,) = found.races
    assert (race.first, race.second) == (
        "copy to host on stream 0.1",
        "aten.fill_.Scalar on stream 0.0",
    )
    copy, fill = line_of("target.copy_(source"), line_of("buffer.fill_(step)")
    text = str(found)
    assert re.search(rf"copy to host on stream 0.1 .*stream_bugs.py:{copy} in copy_out", text)
    assert re.search(
        rf"aten.fill_.Scalar on stream 0.0 .*stream_bugs.py:{fill} in one_buffer_too_few", text
    )
    assert (
        "Stream 0.0 must wait for stream 0.1: record an event on stream 0.1 after 'copy to host', "
        "and make stream 0.0 wait for it before 'aten.fill_.Scalar'." in text
    )
    assert f"stream_bugs.py:{line_of('raise Corrupt')} in check" in text


def test_a_failure_says_what_the_schedule_does_and_how_to_run_it_again(sim: Simulation) -> None:
    found = sim.explore(lambda: test_races.missing_wait(False))
    text = str(found)
    assert text.startswith("2 of 4 schedules failed, 1 races\nschedule lazy:0.0: Corrupt: [nan")
    assert "operations of stream 0.0 run only when something waits for them" in text
    assert text.endswith("run it again: replay(scenario, 'lazy:0.0')")
    assert text.count("nothing orders") == 1, "each race is told once"


def test_the_timeline_marks_the_two_that_lack_an_order(sim: Simulation) -> None:
    failure = sim.explore(lambda: test_races.missing_wait(False)).failures[-1]
    marked = [line for line in failure.excerpt.splitlines() if line.startswith(">")]
    assert len(marked) == 2, failure.excerpt
    assert re.search(r"MainThread +enqueues #1 aten.mul.out on stream 0.0  \[test_races", marked[0])
    assert re.search(r"enqueues #3 copy to host on stream 0.1; it runs at once", marked[1])


def test_memory_that_was_freed_too_early(sim: Simulation) -> None:
    found = sim.explore(lambda: stream_bugs.freed_by_another_thread(False))
    (race,) = found.races
    assert (race.first, race.second) == ("copy to host on stream 0.1", "free on stream 0.0")
    assert f"stream_bugs.py:{line_of('tensors.clear()')} in let_go" in str(found)
    assert "call its record_stream() with stream 0.1" in race.remedy


def test_pinned_memory_that_the_host_read_too_early(sim: Simulation) -> None:
    found = sim.explore(lambda: test_races.wrong_stream(False))
    assert not found.races
    text = str(found)
    assert re.search(
        r"nothing waited for\n    copy to host on stream 0.1 .* in wrong_stream  \(3 times\)", text
    )
    assert "synchronize an event recorded on stream 0.1 after the copy" in text


def test_pinned_memory_that_the_host_refilled_too_early(sim: Simulation) -> None:
    found = sim.explore(lambda: stream_bugs.staging_refilled_between_steps(False))
    assert {race.second for race in found.races} == {"a write of the host"}
    assert "The host must wait for stream 0.0 before it refills that memory" in str(found)


def test_no_false_alarm_where_the_device_wrote_the_pinned_memory(sim: Simulation) -> None:
    def scenario() -> None:
        pinned = torch.zeros(4, pin_memory=True)
        first = pinned.to(D, non_blocking=True)
        pinned.copy_(torch.ones(4, device=D), non_blocking=True)
        second = pinned.to(D, non_blocking=True)
        assert (first.sum() + second.sum()).item() == 4

    found = sim.explore(scenario, seeds=20)
    assert found.ok, str(found)


# Limits ---------------------------------------------------------------------------


def use_streams(count: int) -> None:
    for _ in range(count):
        with torch.Stream(device=D):
            torch.zeros(4, device=D)


def test_more_streams_than_the_budget_are_not_passed_over_in_silence(sim: Simulation) -> None:
    found = sim.explore(lambda: use_streams(6), max_streams=4)
    assert not found.ok
    assert not found.failures
    assert found.skipped == ["stream 0.5", "stream 0.6"]
    assert "the scenario uses 6 streams, and max_streams is 4" in str(found)
    assert "max_streams=6" in str(found)
    assert sim.explore(lambda: use_streams(6), max_streams=6).ok
    with pytest.raises(SimulatorStateError, match="max_streams"):
        sim.explore(lambda: use_streams(1), max_streams=0)


def test_work_that_depends_on_the_schedule_is_noticed(sim: Simulation) -> None:
    def scenario() -> None:
        side = torch.Stream(device=D)
        with side:
            torch.zeros(4, device=D)
        if not side.query():
            torch.ones(4, device=D)

    found = sim.explore(scenario)
    assert found.ok
    assert "notice: under lazy the scenario enqueued other work than under eager" in str(found)
    assert "'aten.fill_.Scalar' on stream 0.0: 1 times instead of 0" in str(found)
    assert not sim.explore(lambda: test_races.missing_wait(True), seeds=20).notices


def test_a_long_run_keeps_its_end_and_shows_less(sim: Simulation) -> None:
    def scenario() -> None:
        value = torch.zeros(4, device=D)
        for _ in range(3000):
            value.add_(1)
        raise ValueError("at the end")

    failure = sim.explore(scenario).failures[0]
    lines = failure.timeline.splitlines()
    assert len(lines) == 2001
    assert "1001 lines left out" in lines[0]
    assert len(failure.excerpt.splitlines()) <= 42
    assert lines[-1] in failure.excerpt


def test_an_excerpt_shows_what_is_marked_and_leaves_out_the_rest() -> None:
    timeline = Timeline()
    for step in range(200):
        timeline.host(f"does {step}")
    assert len(timeline.excerpt([]).splitlines()) == 41
    assert len(str(timeline).splitlines()) == 200


def test_only_the_first_failures_keep_their_timeline(sim: Simulation) -> None:
    def scenario() -> None:
        torch.zeros(4, device=D)
        raise ValueError("always")

    failures = sim.explore(scenario, seeds=40).failures
    assert len(failures) == 43
    assert "enqueues" in failures[19].timeline
    assert "not kept" in failures[20].timeline


def test_a_failure_keeps_no_tensor_alive(sim: Simulation) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def scenario() -> None:
        value = torch.zeros(4, device=D)
        alive.append(weakref.ref(value))
        try:
            raise ValueError("inner")
        except ValueError as error:
            raise RuntimeError("outer") from error

    found = sim.explore(scenario)
    gc.collect()
    assert len(found.failures) == 3
    assert not [1 for reference in alive if reference() is not None]


def test_a_stream_without_an_end_of_its_own_is_named_in_words(sim: Simulation) -> None:
    with sim.faulty("dma-outside-event"):

        def scenario() -> None:
            source = torch.ones(4, device=D)
            target = source.to("cpu", non_blocking=True)
            current().record_event().synchronize()
            assert target.tolist() == [1.0] * 4

        text = str(sim.explore(scenario))
    assert "copy to host on copy engine of stream 0.0" in text


def test_a_scenario_of_100_operations_is_explored_within_5_seconds(sim: Simulation) -> None:
    def scenario() -> None:
        sides = [torch.Stream(device=D) for _ in range(3)]
        value = torch.zeros(64, device=D)
        for step in range(33):
            value.add_(1)
            sides[step % 3].wait_event(current().record_event())
        assert value.cpu().tolist() == [33.0] * 64

    begin = time.process_time()
    found = sim.explore(scenario)
    assert time.process_time() - begin < 5
    assert found.ok, str(found)
    assert len(found.schedules) == 10
