"""Seven bugs of stream code, each with its right twin: what the simulator is for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest
import torch

from omni_platforms.simulator import Simulation

D = "sim"


class Corrupt(AssertionError):
    """A value is not what the program computes in order."""


def check(got: object, want: object) -> None:
    if got != want:
        raise Corrupt(f"{got} != {want}")


def copy_out(stream: torch.Stream, source: torch.Tensor) -> tuple[torch.Tensor, torch.Event]:
    with stream:
        target = torch.empty(source.shape, pin_memory=True)
        target.copy_(source, non_blocking=True)
        return target, stream.record_event()


def current() -> torch.Stream:
    return torch.accelerator.current_stream()


def missing_wait(right: bool) -> None:
    """The copy's stream does not wait for the producer."""
    side = torch.Stream(device=D)
    value = torch.full((4,), 1.0, device=D) * 3
    if right:
        side.wait_event(current().record_event())
    target, done = copy_out(side, value)
    value.record_stream(side)
    done.synchronize()
    check(target.tolist(), [3.0] * 4)


def early_read(right: bool) -> None:
    """The host reads the pinned target before it waits."""
    target = torch.full((4,), 3.0, device=D).to("cpu", non_blocking=True)
    done = torch.Event(device=D)
    done.record()
    if right:
        done.synchronize()
    check(target.tolist(), [3.0] * 4)


def early_free(right: bool) -> None:
    """The memory is freed, and reused, while a side stream still reads it."""
    side = torch.Stream(device=D)
    value = torch.full((128,), 3.0, device=D)
    side.wait_event(current().record_event())
    target, done = copy_out(side, value)
    if right:
        value.record_stream(side)
    del value
    other = torch.full((128,), 9.0, device=D)
    done.synchronize()
    check((target[0].item(), other[0].item()), (3.0, 9.0))


def early_overwrite(right: bool) -> None:
    """The next step overwrites a buffer whose copy is pending."""
    side = torch.Stream(device=D)
    buffer = torch.zeros(4, device=D)
    copies: list[tuple[torch.Tensor, torch.Event]] = []
    for step in range(3):
        if right and copies:
            current().wait_event(copies[-1][1])
        buffer.fill_(step)
        side.wait_event(current().record_event())
        copies.append(copy_out(side, buffer))
    for step, (target, done) in enumerate(copies):
        done.synchronize()
        check(target.tolist(), [float(step)] * 4)


def early_refill(right: bool) -> None:
    """The host refills pinned memory from which a copy is pending."""
    staging = torch.empty(4, pin_memory=True)
    values = []
    done = None
    for step in range(3):
        if right and done is not None:
            done.synchronize()
        staging.fill_(step)
        values.append(staging.to(D, non_blocking=True))
        done = torch.Event(device=D)
        done.record()
    for step, value in enumerate(values):
        check(value.cpu().tolist(), [float(step)] * 4)


def wrong_stream(right: bool) -> None:
    """The event for a worker thread is recorded on another stream than the copy's."""
    side = torch.Stream(device=D)
    default = current()
    jobs: queue.Queue[tuple[torch.Tensor, torch.Event] | None] = queue.Queue()
    results: list[list[float]] = []

    def work() -> None:
        while (job := jobs.get()) is not None:
            job[1].synchronize()
            results.append(job[0].tolist())

    worker = threading.Thread(target=work)
    worker.start()
    for step in range(3):
        value = torch.full((4,), float(step), device=D) * 2
        side.wait_event(default.record_event())
        with side:
            target = value.to("cpu", non_blocking=True)
        done = (side if right else default).record_event()
        value.record_stream(side)
        jobs.put((target, done))
    jobs.put(None)
    worker.join()
    check(results, [[2.0 * step] * 4 for step in range(3)])


def early_record(right: bool) -> None:
    """The event is recorded before the producer's last operation."""
    side = torch.Stream(device=D)
    value = torch.full((4,), 1.0, device=D)
    if not right:
        ready = current().record_event()
    value.add_(1)
    if right:
        ready = current().record_event()
    side.wait_event(ready)
    target, done = copy_out(side, value)
    value.record_stream(side)
    done.synchronize()
    check(target.tolist(), [2.0] * 4)


SCENARIOS = [
    missing_wait,
    early_read,
    early_free,
    early_overwrite,
    early_refill,
    wrong_stream,
    early_record,
]
Scenario = Callable[[bool], None]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)


@every_scenario
def test_a_planted_bug_is_seen_every_time(sim: Simulation, scenario: Scenario) -> None:
    for _ in range(20):
        found = sim.explore(lambda: scenario(False))
        assert any(isinstance(failure.error, Corrupt) for failure in found.failures), str(found)


@every_scenario
def test_a_planted_bug_hides_under_the_eager_schedule(sim: Simulation, scenario: Scenario) -> None:
    assert not sim.explore(lambda: scenario(False)).failed("eager")


@every_scenario
def test_the_right_twin_never_fails(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(True), seeds=60)
    assert found.ok, str(found)
    assert len(found.schedules) >= 62


@pytest.mark.slow
@every_scenario
def test_the_right_twin_never_fails_in_many_seeds(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(True), seeds=200)
    assert found.ok, str(found)


@every_scenario
def test_a_failing_schedule_fails_again(sim: Simulation, scenario: Scenario) -> None:
    failures = sim.explore(lambda: scenario(False), seeds=10).failures
    # A seed says when each task runs, and not when the host's own threads do: with two of
    # them the schedule that defers everything is the one that comes again.
    failure = failures[0 if scenario is wrong_stream else -1]
    with pytest.raises(Corrupt):
        sim.replay(lambda: scenario(False), failure.schedule)
