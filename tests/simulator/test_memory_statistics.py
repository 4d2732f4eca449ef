"""The memory statistics that torch.accelerator and the device module report."""

from __future__ import annotations

import gc

import pytest
import torch

from omni_platforms.simulator import Simulation

D = "sim"
MIB = 1 << 20
POOLS = ("all", "small_pool", "large_pool")
FIELDS = ("current", "peak", "allocated", "freed")
PER_POOL = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
COUNTS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "max_split_size",
)


@pytest.fixture
def clean(sim: Simulation) -> Simulation:
    """No cached memory; sums, counts and peaks start here."""
    gc.collect()  # tensors of failures that earlier tests caught
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    return sim


def stats() -> dict[str, int]:
    return torch.accelerator.memory_stats()


def change(before: dict[str, int], name: str) -> int:
    return stats()[name] - before[name]


def test_all_names_of_torch_are_there(sim: Simulation) -> None:
    names = {f"{name}.{pool}.{field}" for name in PER_POOL for pool in POOLS for field in FIELDS}
    names |= {f"oversize_{name}.{f}" for name in ("allocations", "segments") for f in FIELDS}
    assert set(stats()) >= names | set(COUNTS)
    assert len(names) == 116
    assert all(isinstance(value, int) and value >= 0 for value in stats().values())


def test_the_device_module_says_the_same(clean: Simulation) -> None:
    kept = [torch.ones(300, device=D), torch.ones(MIB, device=f"{D}:1")]
    for device in (0, 1, f"{D}:1", torch.device(D, 1)):
        assert clean.module.memory_stats(device) == torch.accelerator.memory_stats(device)
    nested = clean.module.memory_stats_as_nested_dict(1)
    assert nested["active"]["large_pool"]["current"] == 1
    assert list(clean.module.memory_stats()) == sorted(stats())
    assert kept[0].device.index == 0


def test_bytes_asked_for_rounded_and_held(clean: Simulation) -> None:
    before = stats()
    value = torch.empty(1000, dtype=torch.uint8, device=D)
    assert change(before, "requested_bytes.all.current") == 1000
    for name in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        assert change(before, f"{name}.all.current") == 1024
    del value
    for name in ("requested_bytes", "allocated_bytes", "active_bytes"):
        assert change(before, f"{name}.all.current") == 0
        assert change(before, f"{name}.all.peak") == (1000 if name == "requested_bytes" else 1024)
    assert change(before, "reserved_bytes.all.current") == 1024  # cached


def test_a_small_and_a_large_pool(clean: Simulation) -> None:
    before = stats()
    small = torch.empty(MIB, dtype=torch.uint8, device=D)
    large = torch.empty(MIB + 1, dtype=torch.uint8, device=D)
    assert change(before, "allocated_bytes.small_pool.current") == small.numel()
    assert change(before, "allocated_bytes.large_pool.current") == MIB + 512
    assert change(before, "allocation.all.current") == 2
    assert large.numel() == MIB + 1


def test_memory_is_active_until_recorded_streams_are_past_it(clean: Simulation) -> None:
    clean.reset("lazy")
    side = torch.Stream(device=D)
    before = stats()
    value = torch.ones(256, device=D)
    side.wait_event(torch.accelerator.current_stream().record_event())
    with side:
        copy = value.to("cpu", non_blocking=True)
    value.record_stream(side)
    del value
    assert change(before, "allocated_bytes.all.current") == 0
    assert change(before, "active_bytes.all.current") == 1024
    assert change(before, "requested_bytes.all.current") == 1024
    side.synchronize()
    torch.empty(1, device=D)  # the allocator looks when it is asked for memory
    assert change(before, "active_bytes.all.current") == 0
    assert copy.tolist() == [1.0] * 256


def test_sums_only_grow_and_peaks_stay(clean: Simulation) -> None:
    before = stats()
    for _ in range(3):
        torch.empty(512, dtype=torch.uint8, device=D)
    assert change(before, "allocated_bytes.all.allocated") == 3 * 512
    assert change(before, "allocated_bytes.all.freed") == 3 * 512
    assert change(before, "allocation.all.allocated") == 3
    assert change(before, "segment.all.allocated") == 1  # the block is reused
    assert change(before, "num_device_alloc") == 1
    assert change(before, "allocation.all.peak") == 1


def test_resetting_sums_leaves_values_and_peaks(clean: Simulation) -> None:
    kept = torch.empty(512, dtype=torch.uint8, device=D)
    torch.empty(5120, dtype=torch.uint8, device=D)
    torch.accelerator.empty_cache()
    before = stats()
    torch.accelerator.reset_accumulated_memory_stats()
    after = stats()
    for name, value in after.items():
        if name.endswith((".allocated", ".freed")) or name in COUNTS:
            assert value == 0, name
        else:
            assert value == before[name], name
    del kept
    assert stats()["active_bytes.all.freed"] == 512


def test_resetting_peaks_leaves_sums(clean: Simulation) -> None:
    kept = torch.empty(512, dtype=torch.uint8, device=D)
    torch.empty(5120, dtype=torch.uint8, device=D)
    torch.accelerator.empty_cache()
    before = stats()
    assert torch.accelerator.max_memory_allocated() > torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    for name, value in stats().items():
        current = name.removesuffix(".peak") + ".current"
        assert value == before[current if name.endswith(".peak") else name], name
    assert torch.accelerator.max_memory_allocated() == torch.accelerator.memory_allocated()
    assert kept.numel() == 512


def test_resets_are_for_one_device(clean: Simulation) -> None:
    torch.empty(512, device=f"{D}:1")
    before = torch.accelerator.memory_stats(1)
    torch.accelerator.reset_accumulated_memory_stats(0)
    torch.accelerator.reset_peak_memory_stats(0)
    clean.module.reset_accumulated_memory_stats(0)
    clean.module.reset_peak_memory_stats(0)
    assert torch.accelerator.memory_stats(1) == before
    clean.module.reset_accumulated_memory_stats(f"{D}:1")
    assert torch.accelerator.memory_stats(1)["allocated_bytes.all.allocated"] == 0


def test_running_out_of_memory_is_counted(clean: Simulation) -> None:
    limit = clean.runtime.memory.limit
    cached = torch.empty(MIB, dtype=torch.uint8, device=D)
    del cached
    before = stats()
    for failures in (1, 2):
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            torch.empty(limit + 1, dtype=torch.uint8, device=D)
        assert change(before, "num_ooms") == failures
        assert change(before, "num_alloc_retries") == failures
    assert change(before, "num_device_free") == 1  # the cached block
    assert change(before, "num_sync_all_streams") == 2
    assert change(before, "allocation.all.allocated") == 0
    assert torch.accelerator.memory_stats(1)["num_ooms"] == 0


def test_free_memory_counts_what_is_cached_as_taken(clean: Simulation) -> None:
    free, total = torch.accelerator.get_memory_info()
    torch.empty(MIB, dtype=torch.uint8, device=D)
    assert torch.accelerator.get_memory_info() == (free - MIB, total)
    torch.accelerator.empty_cache()
    assert torch.accelerator.get_memory_info() == (free, total)


def test_pinned_memory_of_the_module(sim: Simulation) -> None:
    before = sim.module.host_memory_stats()
    kept = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
    after = sim.module.host_memory_stats()
    assert after["active_bytes.current"] - before["active_bytes.current"] == kept.numel()
