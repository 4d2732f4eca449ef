"""Collectives between the devices of one process, and the waits that they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_platforms.errors import SimulatedCaptureError, SimulatorStateError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.simulator import Simulation
from tests.simulated import needs_graphs

D = "sim"
acc = torch.accelerator


class Corrupt(AssertionError):
    """A value is not what the program computes in order."""


def check(got: object, want: object) -> None:
    if got != want:
        raise Corrupt(f"{got} != {want}")


def on_each(value: float, numel: int = 4) -> list[torch.Tensor]:
    """One tensor on each device: `value` times 1 and times 2, computed there."""
    return [torch.full((numel,), value, device=f"{D}:{n}") * (n + 1) for n in (0, 1)]


@pytest.mark.parametrize(
    ("op", "want"), [("sum", 9.0), ("avg", 4.5), ("max", 6.0), ("min", 3.0), ("product", 18.0)]
)
def test_all_reduce(sim: Simulation, op: str, want: float) -> None:
    tensors = on_each(3.0)
    assert sim.communicator().all_reduce(tensors, op) is None
    assert [tensor.cpu().tolist() for tensor in tensors] == [[want] * 4] * 2


def test_all_gather_and_broadcast(sim: Simulation) -> None:
    communicator = sim.communicator()
    outputs = [torch.empty(2, 4, device=f"{D}:{n}") for n in (0, 1)]
    communicator.all_gather(outputs, on_each(3.0))
    assert [output.cpu().tolist() for output in outputs] == [[[3.0] * 4, [6.0] * 4]] * 2
    tensors = on_each(3.0)
    communicator.broadcast(tensors, root=1)
    assert [tensor.cpu().tolist() for tensor in tensors] == [[6.0] * 4] * 2


def test_what_does_not_fit_is_refused(sim: Simulation) -> None:
    with pytest.raises(SimulatorStateError, match="one tensor on each"):
        sim.communicator().all_reduce(on_each(1.0)[::-1])
    with pytest.raises(SimulatorStateError, match="no reduction"):
        sim.communicator().all_reduce(on_each(1.0), "median")
    with pytest.raises(SimulatorStateError, match="different devices"):
        sim.communicator([0, 0])


def test_the_host_waits_for_nothing(sim: Simulation) -> None:
    sim.reset("lazy")
    tensors = on_each(3.0)
    work = sim.communicator().all_reduce(tensors, async_op=True)
    assert work is not None
    assert not work.is_completed()
    work.wait()
    sim.communicator().all_reduce(tensors)
    assert sim.host_waits == 0
    assert tensors[1].cpu().tolist() == [18.0] * 4


def test_an_event_of_the_current_stream_covers_it_only_after_the_wait(sim: Simulation) -> None:
    sim.reset("lazy")
    tensors = on_each(3.0)
    work = sim.communicator().all_reduce(tensors, async_op=True)
    assert work is not None
    acc.current_stream(0).record_event().synchronize()
    assert not work.is_completed()
    work.wait()
    acc.current_stream(0).record_event().synchronize()
    acc.current_stream(1).record_event().synchronize()
    assert work.is_completed()


# Planted bugs -------------------------------------------------------------------


def used_before_the_wait(sim: Simulation, right: bool) -> None:
    """A kernel uses the result without a wait for the collective."""
    tensors = on_each(3.0)
    work = sim.communicator().all_reduce(tensors, async_op=True)
    assert work is not None
    if right:
        work.wait()
    doubled = tensors[0] * 2
    work.wait()
    check(doubled.cpu().tolist(), [18.0] * 4)


def event_without_the_wait(sim: Simulation, right: bool) -> None:
    """An event on the default stream stands for a result that an internal stream writes."""
    outputs = [torch.zeros(2, 4, device=f"{D}:{n}") for n in (0, 1)]
    work = sim.communicator().all_gather(outputs, on_each(3.0), async_op=True)
    assert work is not None
    if right:
        work.wait()
    side = torch.Stream(device=D)
    side.wait_event(acc.current_stream(0).record_event())
    with side:
        target = torch.empty(2, 4, pin_memory=True)
        target.copy_(outputs[0], non_blocking=True)
    outputs[0].record_stream(side)
    side.synchronize()
    work.wait()
    check(target.tolist(), [[3.0] * 4, [6.0] * 4])


def waited_for_on_another_stream(sim: Simulation, right: bool) -> None:
    """The wait is made under a side stream, and the default stream uses the result."""
    tensors = on_each(3.0)
    side = torch.Stream(device=D)
    work = sim.communicator().all_reduce(tensors, async_op=True)
    assert work is not None
    with side:
        work.wait()
    if right:
        acc.current_stream(0).wait_event(side.record_event())
    doubled = tensors[0] * 2
    acc.current_stream(0).wait_stream(side)
    check(doubled.cpu().tolist(), [18.0] * 4)


def input_overwritten(sim: Simulation, right: bool) -> None:
    """The next step overwrites the input of a collective under way."""
    inputs = on_each(3.0)
    outputs = [torch.empty(2, 4, device=f"{D}:{n}") for n in (0, 1)]
    work = sim.communicator().all_gather(outputs, inputs, async_op=True)
    assert work is not None
    if right:
        work.wait()
    inputs[0].fill_(9.0)
    work.wait()
    check(outputs[1].cpu().tolist(), [[3.0] * 4, [6.0] * 4])


def handed_over_without_the_wait(sim: Simulation, right: bool) -> None:
    """An output is submitted while the collective that makes it is under way."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        tensors = on_each(3.0, numel=20_000)
        work = sim.communicator().all_reduce(tensors, async_op=True)
        assert work is not None
        if right:
            work.wait()
        result = outputs.submit(tensors[0]).result(10)
        work.wait()
        check(bool(result.eq(9.0).all()), True)


SCENARIOS = [
    used_before_the_wait,
    event_without_the_wait,
    waited_for_on_another_stream,
    input_overwritten,
    handed_over_without_the_wait,
]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
Scenario = Callable[[Simulation, bool], None]


@every_scenario
def test_a_planted_bug_is_seen_every_time(sim: Simulation, scenario: Scenario) -> None:
    for _ in range(10):
        found = sim.explore(lambda: scenario(sim, False))
        assert any(isinstance(failure.error, Corrupt) for failure in found.failures), str(found)
        assert not found.failed("eager")


@every_scenario
def test_the_right_twin_never_fails(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(sim, True), seeds=60)
    assert found.ok, str(found)


def test_memory_freed_during_a_collective_is_kept_for_it(sim: Simulation) -> None:
    def scenario() -> None:
        inputs = on_each(3.0)
        outputs = [torch.empty(2, 4, device=f"{D}:{n}") for n in (0, 1)]
        work = sim.communicator().all_gather(outputs, inputs, async_op=True)
        del inputs
        others = on_each(7.0)
        assert work is not None
        work.wait()
        check(outputs[0].cpu().tolist(), [[3.0] * 4, [6.0] * 4])
        check(others[0].cpu().tolist(), [7.0] * 4)

    found = sim.explore(scenario, seeds=60)
    assert found.ok, str(found)


@needs_graphs
def test_a_collective_in_a_graph_must_be_waited_for(sim: Simulation) -> None:
    communicator = sim.communicator([0])
    source = torch.ones(4, device=D)
    graph = acc.Graph()

    def capture(wait: bool) -> torch.Tensor:
        with torch.Stream(device=D), graph:
            output = torch.empty(1, 4, device=D)
            work = communicator.all_gather([output], [source * 2], async_op=True)
            if wait:
                assert work is not None
                work.wait()
        return output

    with pytest.raises(SimulatedCaptureError, match="waits for the captured work"):
        capture(wait=False)
    output = capture(wait=True)
    for value in (1.0, 5.0):
        source.fill_(value)
        graph.replay()
        assert output.cpu().tolist() == [[2 * value] * 4]
