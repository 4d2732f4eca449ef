"""Each vendor's own platform on a simulated device of that vendor, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.simulated

CHECK = """
    import importlib, sys
    from omni_platforms.simulator import simulate
    name = sys.argv[1]
    simulation = simulate(name)
    import torch
    from omni_platforms.outputs import AsyncOutputExecutor
    from omni_platforms.platform import Capability
    plugin = importlib.import_module(f"omni_platforms_{name}.plugin")
    platform = plugin.omni_platforms_create(name)
    assert getattr(platform, f"is_{name}")() and platform.device_type == name

    # What is declared works, and what is not answers None.
    has = platform.capabilities
    uuids = [platform.device_uuid(index) for index in range(platform.device_count())]
    assert (None not in uuids and len(set(uuids)) == 2) == (Capability.DEVICE_UUID in has), uuids
    assert (platform.device_capability(0) is not None) == (Capability.DEVICE_CAPABILITY in has)
    assert (platform.host_memory_stats() is not None) == (Capability.HOST_MEMORY_STATS in has)
    assert (platform.release_host_memory() is True) == (Capability.RELEASE_HOST_MEMORY in has)
    assert (platform.sync_debug("warn") is not None) == (Capability.SYNC_DEBUG in has)
    registered = platform.register_host_memory(bytearray(1 << 16))
    assert (registered is not None) == (Capability.HOST_REGISTRATION in has)
    if registered is not None:
        value = torch.full((1 << 16,), 7, dtype=torch.uint8, device=name)
        registered.tensor.copy_(value, non_blocking=True)
        platform.synchronize()
        assert registered.tensor.eq(7).all()
        registered.close()
    info = platform.memory_info(1)
    assert 0 < info.free <= info.total == 1 << 30
    assert platform.device_name(1) and platform.profiler_activity is not None
    assert platform.is_capturing() is False

    # The current device and stream are the calling thread's, and stay what they are.
    side = platform.create_side_stream(1, priority=-1)
    assert side.device.index == 1 and platform.current_device().index == 0
    assert type(platform.record_device_event(side)) is torch.Event
    platform.synchronize(1)
    platform.empty_cache()

    def scenario():
        with AsyncOutputExecutor(platform) as outputs:
            futures = []
            for i in range(3):
                for size in (64, 20_000):
                    image = torch.full((size,), float(i), device=name) * 2
                    futures.append((i, outputs.submit(image)))
                    del image
                    torch.full((size,), 99.0, device=name)
            for i, future in futures:
                assert future.result(10).eq(2.0 * i).all(), "CORRUPT"
            assert outputs.stats().mode == "async", outputs.stats().reason

    found = simulation.explore(scenario, seeds=5)
    assert found.ok, str(found)
    before = simulation.host_waits_of()
    torch.ones(8, device=name)
    platform.record_device_event()
    assert simulation.host_waits_of() == before, "an event makes the host wait"
    print("right", sorted(capability.value for capability in set(Capability) - has))
"""


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("npu", ["device_capability"]),
        ("musa", ["device_uuid", "host_memory_stats", "sync_debug"]),
        ("xpu", ["device_capability", "host_memory_stats", "host_registration", "sync_debug"]),
    ],
)
def test_the_platform_keeps_its_contract(name: str, lacking: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHECK), name],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"right {lacking}"
