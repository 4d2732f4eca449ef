"""Faults of a vendor's device: through torch's generic interface and in the vendor's module."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_platforms.simulator import Simulation


def an_event_covers_the_copy(sim: Simulation) -> None:
    sim.reset("lazy")
    source = torch.ones(4, device=sim.name)
    target = source.to("cpu", non_blocking=True)
    torch.accelerator.current_stream().record_event().synchronize()
    assert target.tolist() == [1.0] * 4


def the_generic_call_sets_the_device(sim: Simulation) -> None:
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == 1


def the_module_sets_the_device(sim: Simulation) -> None:
    sim.module.set_device(1)
    assert sim.module.current_device() == 1


def a_stream_is_where_it_was_asked_for(sim: Simulation) -> None:
    assert torch.Stream(device=f"{sim.name}:1").device.index == 1


def pinned_memory_is_pinned(sim: Simulation) -> None:
    assert torch.empty(4, pin_memory=True).is_pinned()


def recording_waits_for_nothing(sim: Simulation) -> None:
    before = sim.host_waits_of()
    torch.accelerator.current_stream().record_event()
    assert sim.host_waits_of() == before


def the_module_tells_free_memory(sim: Simulation) -> None:
    assert sim.module.mem_get_info(0)


def the_generic_call_empties_the_cache(sim: Simulation) -> None:
    torch.accelerator.empty_cache()


PAIRS: list[tuple[str, Callable[[Simulation], None]]] = [
    ("dma-outside-event", an_event_covers_the_copy),
    ("set-device-noop", the_generic_call_sets_the_device),
    ("set-device-noop", the_module_sets_the_device),
    ("stream-ignores-index", a_stream_is_where_it_was_asked_for),
    ("no-pin", pinned_memory_is_pinned),
    ("pin-raises", pinned_memory_is_pinned),
    ("hidden-host-sync:record-event", recording_waits_for_nothing),
    ("missing-method:module.mem_get_info", the_module_tells_free_memory),
    ("missing-method:empty-cache", the_generic_call_empties_the_cache),
]


def check_each_fault_is_seen_and_nothing_without_it(sim: Simulation) -> None:
    for fault, check in PAIRS:
        sim.reset()
        check(sim)
        sim.reset()
        with sim.faulty(fault), pytest.raises((AssertionError, RuntimeError, AttributeError)):
            check(sim)
        sim.reset()
        check(sim)


def check_the_vendors_module_has_what_only_the_generic_call_lacks(sim: Simulation) -> None:
    with sim.faulty("missing-method:empty-cache"):
        sim.module.empty_cache()
