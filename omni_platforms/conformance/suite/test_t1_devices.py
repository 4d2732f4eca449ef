"""T1: devices, by number and by thread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from omni_platforms.conformance.marks import devices, needs, remedy, tier
from omni_platforms.conformance.rig import Rig, in_thread
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, OmniPlatform

pytestmark = tier("T1")


def here() -> torch.device:
    """Return where a tensor goes that names no number: torch's own view of the current device."""
    kind = torch.accelerator.current_accelerator()
    assert kind is not None
    return torch.empty(1, device=kind.type).device


@remedy("Count what this process may use, after the visibility variable.")
def test_devices_are_counted_and_numbered(rig: Rig, platform: OmniPlatform) -> None:
    """`device_count()` counts the devices that tensors can be put on; `device(n)` names one."""
    count = platform.device_count()
    assert count == (1 if rig.on_cpu else rig.module.device_count())
    found = [platform.device(index) for index in range(count)]
    assert found == ([torch.device("cpu")] if rig.on_cpu else [rig.on(i) for i in range(count)])
    assert torch.ones(1, device=found[-1]).item() == 1


@devices(2)
@remedy("Call the vendor's or torch's set_device; check for shims that redirect it.")
def test_set_device_changes_the_current_device(accelerator: Rig, platform: OmniPlatform) -> None:
    """After `set_device(d)`, tensors without a number go to `d`, and `current_device()` is `d`."""
    for index in (1, 0, 1):
        platform.set_device(index)
        assert here() == accelerator.on(index)
        assert platform.current_device() == accelerator.on(index)
    platform.set_device(accelerator.on(0))
    assert here() == accelerator.on(0)


@devices(2)
@remedy("Ask the runtime each time; keep no copy of the current device.")
def test_current_device_follows_whoever_changes_it(
    accelerator: Rig, platform: OmniPlatform
) -> None:
    """`current_device()` and `is_current_device()` see a change that others made through torch."""
    for index in (1, 0):
        torch.accelerator.set_device_index(index)
        assert platform.current_device() == accelerator.on(index)
        said = [platform.is_current_device(accelerator.on(i)) for i in (0, 1)]
        assert said == [index == 0, index == 1]


@devices(2)
@remedy("Set the calling thread's device only; the runtime keeps one a thread.")
def test_each_thread_has_its_own_current_device(accelerator: Rig, platform: OmniPlatform) -> None:
    """`set_device()` on one thread leaves the others where they are; a new one starts on 0."""
    platform.set_device(1)

    def other() -> list[torch.device]:
        first = platform.current_device()
        platform.set_device(0)
        return [first, here()]

    assert in_thread(other) == [accelerator.on(0), accelerator.on(0)]
    assert here() == accelerator.on(1)


@remedy("Name the device from its properties, by its number.")
def test_device_name_is_the_model(rig: Rig, platform: OmniPlatform) -> None:
    """`device_name(index)` is the model's name as the vendor's package gives it."""
    for index in range(platform.device_count()):
        name = platform.device_name(index)
        assert isinstance(name, str)
        assert name.strip()
        if not rig.on_cpu:
            assert name == str(rig.module.get_device_properties(index).name)


@needs(Capability.DEVICE_UUID)
@remedy("Use the index; several vendors' helpers ignore it.")
def test_device_uuid_tells_devices_apart(platform: OmniPlatform) -> None:
    """`device_uuid(index)` is a text, the same each time, and another one for each device."""
    found = [platform.device_uuid(index) for index in range(platform.device_count())]
    assert all(isinstance(uuid, str) and uuid for uuid in found)
    assert found == [platform.device_uuid(index) for index in range(platform.device_count())]
    assert len(set(found)) == len(found)


@needs(Capability.DEVICE_CAPABILITY)
@remedy("Return two whole numbers; answer None where the vendor has a list of features instead.")
def test_device_capability_is_two_numbers(rig: Rig, platform: OmniPlatform) -> None:
    """`device_capability(index)` is `(major, minor)`, as the vendor's package gives it."""
    for index in range(platform.device_count()):
        found = platform.device_capability(index)
        assert isinstance(found, tuple)
        assert [type(part) for part in found] == [int, int]
        assert found == tuple(rig.module.get_device_capability(index))


@remedy("Read /sys/bus/pci/devices/<address>/numa_node, and answer None for -1.")
def test_numa_node_exists(platform: OmniPlatform) -> None:
    """`numa_node(index)` is a memory node of this host, or `None`."""
    nodes = Path("/sys/devices/system/node")
    for index in range(platform.device_count()):
        node = platform.numa_node(index)
        assert node is None or (nodes / f"node{node}").is_dir(), f"there is no node {node}"


@remedy("Let OmniPlatform.resolve_device do it.")
def test_resolve_device_takes_every_way_to_name_one(rig: Rig, platform: OmniPlatform) -> None:
    """`resolve_device()` takes a number, a name, a `torch.device` or `None`, for this type only."""
    kind, last = platform.device_type, platform.device_count() - 1
    expected = torch.device("cpu") if rig.on_cpu else rig.on(last)
    named: list[DeviceLike] = [last, f"{kind}:{last}", torch.device(kind, last)]
    assert [platform.resolve_device(way) for way in named] == [expected] * 3
    current = torch.device("cpu") if rig.on_cpu else here()
    unnamed: list[DeviceLike] = [None, kind, torch.device(kind)]
    assert [platform.resolve_device(way) for way in unnamed] == [current] * 3
    with pytest.raises(ValueError, match="meta"):
        platform.resolve_device("meta")


def test_profiler_activity_is_one_of_torchs(platform: OmniPlatform) -> None:
    """`profiler_activity` is what `torch.profiler.profile(activities=...)` takes, or `None`."""
    activity = platform.profiler_activity
    assert activity is None or isinstance(activity, torch.profiler.ProfilerActivity)
    on_host = activity is torch.profiler.ProfilerActivity.CPU
    assert on_host == (platform.device_type == "cpu") or activity is None


@pytest.fixture
def big(accelerator: Rig) -> Iterator[int]:
    """A size in bytes that no other work here comes near to, with nothing of it cached."""
    accelerator.module.empty_cache()
    yield 128 << 20
    accelerator.module.empty_cache()


def _total_bytes(rig: Rig, index: int) -> int:
    if rig.on_cpu:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(rig.module.get_device_properties(index).total_memory)


@needs(Capability.MEMORY_INFO)
@remedy("Bytes, not megabytes; free first, total second.")
def test_memory_info_is_in_bytes(rig: Rig, platform: OmniPlatform) -> None:
    """`memory_info(device)` gives free and total memory in bytes; free is at most total."""
    for index in range(platform.device_count()):
        info = platform.memory_info(index)
        assert info is not None
        total = _total_bytes(rig, index)
        assert 0.9 * total <= info.total <= 1.1 * total, f"{info.total} of {total} bytes"
        assert 0 < info.free <= info.total


def _use(device: torch.device) -> None:
    """Let the driver load what it loads at first use, which takes memory of the device."""
    assert torch.ones(2, dtype=torch.uint8, device=device)[-1].item() == 1


@needs(Capability.MEMORY_INFO)
@remedy("Ask for the device that was named, not for the current one.")
def test_memory_info_sees_what_is_allocated_where(
    accelerator: Rig, platform: OmniPlatform, big: int
) -> None:
    """Free memory of `device`, and of no other, goes down by what is allocated there."""
    last = platform.device_count() - 1
    torch.accelerator.set_device_index(0)
    for index in {0, last}:
        _use(accelerator.on(index))

    def free() -> dict[int, int]:
        found = {index: platform.memory_info(index) for index in {0, last}}
        return {index: info.free for index, info in found.items() if info is not None}

    before = free()
    kept = torch.ones(big, dtype=torch.uint8, device=accelerator.on(last))
    taken = {index: before[index] - left for index, left in free().items()}
    assert kept[-1].item() == 1
    assert big * 0.9 <= taken.pop(last) <= big * 1.5
    assert all(-big / 2 < other < big / 2 for other in taken.values())


@needs(Capability.MEMORY_INFO)
@remedy("Call the vendor's empty_cache where torch's generic one fails.")
def test_empty_cache_gives_memory_back(accelerator: Rig, platform: OmniPlatform, big: int) -> None:
    """After `empty_cache()`, memory of tensors that are gone is free again."""
    _use(accelerator.on(0))
    before = platform.memory_info(0)
    kept = torch.ones(big, dtype=torch.uint8, device=accelerator.on(0))
    assert kept[-1].item() == 1
    del kept
    platform.empty_cache()
    after = platform.memory_info(0)
    assert before is not None
    assert after is not None
    assert after.free > before.free - big / 2, "the cache still holds it"


@remedy("Where torch.accelerator.synchronize fails, call the vendor's.")
def test_synchronize_waits_for_all_streams_of_the_device(
    accelerator: Rig, platform: OmniPlatform
) -> None:
    """`synchronize(device)` blocks until the work of all streams of `device` is done."""
    last = platform.device_count() - 1
    for index in {0, last}:
        side = torch.Stream(device=accelerator.on(index))
        torch.accelerator.set_device_index(0)
        work = [accelerator.keep_busy(index=index), accelerator.keep_busy(side)]
        platform.synchronize(accelerator.on(index))
        assert all(each.done() for each in work)
        assert torch.accelerator.current_device_index() == 0


def test_synchronize_without_a_device_means_the_current_one(
    accelerator: Rig, platform: OmniPlatform
) -> None:
    """`synchronize()` blocks until the calling thread's current device is done."""
    last = platform.device_count() - 1
    torch.accelerator.set_device_index(last)
    work = accelerator.keep_busy(index=last)
    platform.synchronize()
    assert work.done()
