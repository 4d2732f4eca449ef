"""What the native streams and events of npu and musa have in common."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omni_platforms.errors import SimulatedHangError, SimulatorStateError
from omni_platforms.simulator import Simulation


def native(sim: Simulation) -> Any:
    return torch.get_device_module(sim.name)


def check_a_generic_stream_silently_ignores_a_native_event(sim: Simulation) -> None:
    def scenario(event: Any) -> None:
        side = torch.Stream(device=sim.name)
        value = torch.ones(4, device=sim.name) * 2
        event.record()
        side.wait_event(event)
        with side:
            copy = value.to("cpu", non_blocking=True)
        side.synchronize()
        assert copy.tolist() == [2.0] * 4

    assert sim.explore(lambda: scenario(native(sim).Event())).failed("lazy:0.0")
    right = sim.explore(lambda: scenario(torch.Event(device=sim.name)), seeds=20)
    assert right.ok, str(right)


def check_a_generic_stream_refuses_to_record_a_native_event(sim: Simulation) -> None:
    with pytest.raises(RuntimeError, match=r"torch\.Event object"):
        torch.Stream(device=sim.name).record_event(native(sim).Event())


def check_a_native_stream_waits_for_either_event(sim: Simulation) -> None:
    def scenario(event: Any) -> None:
        side = native(sim).Stream()
        value = torch.ones(4, device=sim.name) * 2
        event.record(native(sim).current_stream())
        side.wait_event(event)
        with native(sim).stream(side):
            copy = value.to("cpu", non_blocking=True)
        side.synchronize()
        assert copy.tolist() == [2.0] * 4

    for make in (native(sim).Event, lambda: torch.Event(device=sim.name)):
        found = sim.explore(lambda make=make: scenario(make()), seeds=20)
        assert found.ok, str(found)


def check_native_streams_wait_for_each_other(sim: Simulation) -> None:
    sim.reset("lazy")
    first, second = native(sim).Stream(), native(sim).Stream()
    with native(sim).stream(first):
        value = torch.ones(1, device=sim.name) + 1
    second.wait_stream(first)
    with native(sim).stream(second):
        copy = value.to("cpu", non_blocking=True)
    second.synchronize()
    assert copy.item() == 2


def check_a_native_event_refuses_a_generic_stream(sim: Simulation) -> None:
    event, stream = native(sim).Event(), torch.Stream(device=sim.name)
    for call in (event.record, event.wait):
        with pytest.raises(SimulatorStateError, match="reads past the end"):
            call(stream)


def check_a_native_event_is_complete_until_it_is_recorded(sim: Simulation) -> None:
    sim.reset("lazy")
    event = native(sim).Event(enable_timing=True, blocking=True, interprocess=False)
    assert event.query()
    torch.ones(3, device=sim.name).add_(1)
    event.record()
    assert not event.query()
    event.synchronize()
    assert event.query()


def check_native_streams_are_generic_ones_by_type(sim: Simulation) -> None:
    side = native(sim).Stream(device=1)
    assert isinstance(side, torch.Stream)
    assert side.device_index == 1
    assert side != torch.Stream(device=f"{sim.name}:1")
    native(sim).set_stream(side)
    assert torch.accelerator.current_device_index() == 1
    assert native(sim).current_stream() == side
    assert hash(native(sim).current_stream()) == hash(side)
    assert torch.accelerator.current_stream().stream_id == side.stream_id
    assert native(sim).default_stream() != side


def check_a_wait_before_its_record_hangs_where_that_is_the_fault(sim: Simulation) -> None:
    side = native(sim).Stream()
    native(sim).Event().wait(side)
    side.synchronize()
    with sim.faulty("wait-before-record-hangs", hang_seconds=0.01):
        native(sim).Event().wait(side)
        assert not any(side.query() for _ in range(20))
        with pytest.raises(SimulatedHangError):
            side.synchronize()
