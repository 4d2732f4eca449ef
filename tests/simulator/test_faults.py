"""Each fault: a small check that is red with the fault on and green with it off."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator import Faults, Simulation, known_faults, simulate

D = "sim"
Check = Callable[[Simulation], None]


def current(index: int | None = None) -> torch.Stream:
    return torch.accelerator.current_stream(index)


def a_generic_stream_waits_for_a_native_event(sim: Simulation) -> None:
    sim.reset("lazy:0.0")
    side = torch.Stream(device=D)
    value = torch.ones(4, device=D) * 3
    ready = sim.module.Event()
    ready.record()
    side.wait_event(ready)
    with side:
        target = value.to("cpu", non_blocking=True)
    side.synchronize()
    assert target.tolist() == [3.0] * 4


def an_event_covers_the_copy_before_it(sim: Simulation) -> None:
    sim.reset("lazy")
    target = torch.ones(4, device=D).to("cpu", non_blocking=True)
    current().record_event().synchronize()
    assert target.tolist() == [1.0] * 4


def an_event_that_is_done_wakes_its_waiter(sim: Simulation) -> None:
    torch.ones(4, device=D)
    current().record_event().synchronize()


def a_wait_for_an_event_never_recorded_passes(sim: Simulation) -> None:
    side = torch.Stream(device=D)
    sim.module.Event().wait(side)
    side.synchronize()


def a_stream_may_wait_for_itself(sim: Simulation) -> None:
    current().wait_event(current().record_event())


def a_collective_that_was_waited_for_is_in_order(sim: Simulation) -> None:
    sim.reset("lazy")
    tensors = [torch.full((4,), 3.0, device=f"{D}:{index}") for index in (0, 1)]
    sim.communicator().all_reduce(tensors)
    assert tensors[0].cpu().tolist() == [6.0] * 4


def a_pageable_copy_is_done_when_it_returns(sim: Simulation) -> None:
    sim.reset("lazy")
    target = torch.empty(4)
    target.copy_(torch.ones(4, device=D), non_blocking=True)
    assert target.tolist() == [1.0] * 4


def a_pageable_source_may_be_dropped(sim: Simulation) -> None:
    sim.reset("lazy")
    there = torch.ones(4).to(D, non_blocking=True)
    assert there.cpu().tolist() == [1.0] * 4


def pinned_memory_is_pinned(sim: Simulation) -> None:
    assert torch.empty(4, pin_memory=True).is_pinned()


def pinned_memory_takes_what_the_platform_says(sim: Simulation) -> None:
    sim.reset()
    said = sim.platform.pinned_allocation_bytes(3000)
    before = sim.platform.host_memory_stats()
    kept = torch.empty(3000, dtype=torch.uint8, pin_memory=True)
    after = sim.platform.host_memory_stats()
    name = "allocated_bytes.current"
    assert before is not None
    assert after is not None
    assert after[name] - before[name] == said, kept.shape


def a_device_that_was_set_is_current(sim: Simulation) -> None:
    sim.platform.set_device(1)
    assert sim.platform.current_device().index == 1


def a_stream_is_on_the_device_asked_for(sim: Simulation) -> None:
    assert torch.Stream(device=f"{D}:1").device.index == 1
    assert sim.module.Stream(1).device.index == 1


def two_threads_leave_one_stream_as_they_came(sim: Simulation) -> None:
    """The first to enter leaves first, which the second one's record must survive."""
    shared, own = torch.Stream(device=D), torch.Stream(device=D)
    entered = threading.Barrier(2, timeout=10)
    left, after = threading.Event(), []

    def first() -> None:
        torch.accelerator.set_stream(own)
        with sim.module.stream(shared):
            entered.wait()
            entered.wait()
        after.append(current() == own)
        left.set()

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait()
    with sim.module.stream(shared):
        entered.wait()
        assert left.wait(10)
    thread.join(10)
    assert after == [True]


def the_device_can_be_synchronized(sim: Simulation) -> None:
    torch.accelerator.synchronize()


def the_module_tells_free_memory(sim: Simulation) -> None:
    assert sim.module.mem_get_info()


def recording_makes_no_host_wait(sim: Simulation) -> None:
    before = sim.host_waits_of()
    sim.platform.record_device_event()
    assert sim.host_waits_of() == before


def copying_makes_no_host_wait(sim: Simulation) -> None:
    source, target = torch.ones(4, device=D), torch.empty(4, pin_memory=True)
    before = sim.host_waits_of()
    target.copy_(source, non_blocking=True)
    assert sim.host_waits_of() == before


def side_streams_make_no_host_wait(sim: Simulation) -> None:
    stream = torch.Stream(device=D)
    event = current().record_event()
    before = sim.host_waits_of()
    torch.Stream(device=D).wait_event(event)
    with stream:
        torch.empty(4, device=D)
        event.query()
    torch.accelerator.set_device_index(0)
    torch.empty(4, pin_memory=True)
    assert sim.host_waits_of() == before


PAIRS: list[tuple[str, Check]] = [
    ("native-event-ignored", a_generic_stream_waits_for_a_native_event),
    ("dma-outside-event", an_event_covers_the_copy_before_it),
    ("missed-wakeup", an_event_that_is_done_wakes_its_waiter),
    ("wait-before-record-hangs", a_wait_for_an_event_never_recorded_passes),
    ("same-stream-wait-raises", a_stream_may_wait_for_itself),
    ("invisible-comm-stream", a_collective_that_was_waited_for_is_in_order),
    ("pageable-copy-async", a_pageable_copy_is_done_when_it_returns),
    ("pageable-copy-async", a_pageable_source_may_be_dropped),
    ("no-pin", pinned_memory_is_pinned),
    ("pin-raises", pinned_memory_is_pinned),
    ("pin-rounds-up", pinned_memory_takes_what_the_platform_says),
    ("set-device-noop", a_device_that_was_set_is_current),
    ("stream-ignores-index", a_stream_is_on_the_device_asked_for),
    ("stream-context-on-object", two_threads_leave_one_stream_as_they_came),
    ("missing-method:synchronize-device", the_device_can_be_synchronized),
    ("missing-method:synchronize-device=NotImplementedError", the_device_can_be_synchronized),
    ("missing-method:module.mem_get_info", the_module_tells_free_memory),
    ("hidden-host-sync:record-event", recording_makes_no_host_wait),
    ("hidden-host-sync:copy-to-host", copying_makes_no_host_wait),
    *(
        (f"hidden-host-sync:{primitive}", side_streams_make_no_host_wait)
        for primitive in (
            "wait-event", "query-event", "new-stream", "set-stream", "set-device", "allocate", "pin"
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "check"), PAIRS, ids=lambda x: x if type(x) is str else "")
def test_a_check_is_red_with_the_fault_and_green_without(
    sim: Simulation, fault: str, check: Check
) -> None:
    check(sim)
    sim.reset()
    with (
        sim.faulty(fault, hang_seconds=0.01),
        pytest.raises((AssertionError, RuntimeError, AttributeError)),
    ):
        check(sim)
    sim.reset()
    check(sim)


def test_every_fault_has_a_pair() -> None:
    tested = {fault.partition(":")[0] for fault, _ in PAIRS}
    assert tested == {*known_faults(), "missing-method", "hidden-host-sync"}


# How faults are switched ----------------------------------------------------------


def test_faults_last_for_a_run_a_block_or_all_runs(sim: Simulation) -> None:
    sim.reset(faults=["no-pin"])
    assert not torch.empty(4, pin_memory=True).is_pinned()
    sim.reset()
    assert torch.empty(4, pin_memory=True).is_pinned()
    with sim.faulty("no-pin", "pin-rounds-up"):
        sim.reset()
        assert sim.runtime.faults.now.names() == ["no-pin", "pin-rounds-up"]
        assert not sim.explore(lambda: pinned_memory_is_pinned(sim)).ok
    assert sim.explore(lambda: pinned_memory_is_pinned(sim)).ok
    assert simulate("sim", faults=["no-pin"]) is sim
    try:
        sim.reset()
        assert not torch.empty(4, pin_memory=True).is_pinned()
    finally:
        sim.set_faults([])


def test_names_go_both_ways() -> None:
    names = ["no-pin", "missing-method:module.x=RuntimeError", "hidden-host-sync:pin"]
    assert Faults.of(names).names() == names
    assert Faults.of(Faults(no_pin=True)) == Faults.of("no-pin")


@pytest.mark.parametrize(
    "name",
    ["no-pins", "no_pin", "hang-seconds", "missing-methods", "missing-method:",
     "missing-method:fly", "missing-method:pin=TypeError", "hidden-host-sync:fly"],
)  # fmt: skip
def test_a_name_that_is_no_fault(name: str) -> None:
    with pytest.raises(SimulatorStateError, match="is not possible as a fault"):
        Faults.of([name])
