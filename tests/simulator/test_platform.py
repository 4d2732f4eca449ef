"""The platform object of a simulated accelerator."""

from __future__ import annotations

import pytest
import torch

from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import MemoryInfo
from omni_platforms.simulator import SimulatedPlatform, Simulation
from tests.simulated import needs_graphs

D = "sim"


def test_what_it_is(sim: Simulation) -> None:
    platform = sim.platform
    assert isinstance(platform, SimulatedPlatform)
    assert (platform.name, platform.device_type) == ("sim", "sim")
    assert platform.device_count() == 2
    assert platform.device_name(1) == "Simulated sim"
    assert platform.device_uuid(0) != platform.device_uuid(1)
    assert platform.device_capability() == (1, 0)
    assert sim.platform is platform


def sees_a_capture(sim: Simulation) -> bool:
    graph = torch.accelerator.Graph()
    with torch.Stream(device=D), graph:
        return sim.platform.is_capturing()


@needs_graphs
def test_it_has_what_it_declares(sim: Simulation) -> None:
    platform = sim.platform
    answers = {
        Capability.DEVICE_EVENTS: platform.record_device_event(),
        Capability.SIDE_STREAMS: platform.create_side_stream(),
        Capability.PINNED_MEMORY: platform.pinned_empty((4,), torch.float32),
        Capability.HOST_REGISTRATION: platform.register_host_memory(bytearray(64)),
        Capability.HOST_MEMORY_STATS: platform.host_memory_stats(),
        Capability.RELEASE_HOST_MEMORY: platform.release_host_memory(),
        Capability.MEMORY_INFO: platform.memory_info(),
        Capability.DEVICE_UUID: platform.device_uuid(),
        Capability.DEVICE_CAPABILITY: platform.device_capability(),
        Capability.SYNC_DEBUG: platform.sync_debug("warn"),
        Capability.GRAPH_CAPTURE: sees_a_capture(sim) or None,
    }
    declared = {name for name, answer in answers.items() if answer is not None}
    assert declared == platform.capabilities
    registered = answers[Capability.HOST_REGISTRATION]
    registered.close()  # type: ignore[union-attr]


def test_memory_info(sim: Simulation) -> None:
    platform = sim.platform
    platform.empty_cache()
    before = platform.memory_info(1)
    kept = torch.empty(1 << 20, dtype=torch.uint8, device=f"{D}:1")
    after = platform.memory_info(f"{D}:1")
    assert isinstance(before, MemoryInfo)
    assert after == MemoryInfo(before.free - kept.numel(), before.total)
    assert platform.memory_info(0) != after


def test_an_output_leaves_the_device_without_a_wait_of_the_producer(sim: Simulation) -> None:
    """The shape of every asynchronous copy: record, wait, copy, record, wait on the host."""
    platform = sim.platform

    def scenario() -> None:
        side = platform.create_side_stream()
        output = torch.full((64,), 1.0, device=D) * 2
        ready = platform.record_device_event()
        target = platform.pinned_empty((64,), torch.float32)
        assert side is not None
        assert ready is not None
        assert target is not None
        with platform.stream_context(side):
            platform.stream_wait_event(side, ready)
            target.copy_(output, non_blocking=True)
            output.record_stream(side)
            done = platform.record_device_event(side)
        del output
        assert done is not None
        assert platform.host_waits == 0
        assert platform.synchronize_event(done, timeout=10)
        assert target.tolist() == [2.0] * 64

    found = sim.explore(scenario, seeds=100)
    assert found.ok, str(found)


def test_a_stream_does_not_wait_for_a_vendors_event(sim: Simulation) -> None:
    side = sim.platform.create_side_stream()
    assert side is not None
    with pytest.raises(TypeError, match="torch ignores a vendor's event"):
        sim.platform.stream_wait_event(side, sim.module.Event())


def test_a_wait_that_times_out(sim: Simulation) -> None:
    sim.reset("lazy")
    torch.ones(4, device=D).add_(1)
    event = sim.platform.record_device_event()
    assert event is not None
    assert sim.platform.synchronize_event(event, timeout=0) is False
    assert sim.platform.synchronize_event(event) is True
