"""Device and pinned memory: reuse, poison, limits, statistics, registration."""

from __future__ import annotations

import gc
import mmap

import pytest
import torch

from omni_platforms.errors import HostRegistrationError
from omni_platforms.simulator import Simulation

D = "sim"


def test_fresh_memory_is_undefined(sim: Simulation) -> None:
    assert torch.empty(4, device=D).cpu().isnan().all()
    assert torch.empty(4, dtype=torch.int32, device=D).cpu().tolist() == [-1] * 4
    assert torch.empty(4, pin_memory=True).isnan().all()


def test_the_latest_freed_block_is_reused_on_its_stream_only(sim: Simulation) -> None:
    first, second = torch.empty(100, device=D), torch.empty(100, device=D)
    addresses = [first.data_ptr(), second.data_ptr()]
    del first, second
    with torch.Stream(device=D):
        assert torch.empty(100, device=D).data_ptr() not in addresses
    assert torch.empty(500, device=D).data_ptr() not in addresses
    again = torch.empty(101, device=D)  # the same size after rounding
    assert again.data_ptr() == addresses[1]
    assert torch.empty(100, device=D).data_ptr() == addresses[0]


def test_a_freed_block_is_poisoned_in_stream_order(sim: Simulation) -> None:
    sim.reset("lazy")
    value = torch.ones(4, device=D)
    result = value + 1
    del value
    assert result.cpu().tolist() == [2.0] * 4  # its task came before the free
    block = sim.runtime.memory.find(result.data_ptr())
    assert block is not None
    del result
    assert block.storage[:4].tolist() != [255] * 4
    torch.accelerator.synchronize()
    assert list(block.storage[:4]) == [255] * 4


def test_record_stream_keeps_a_block_from_reuse(sim: Simulation) -> None:
    sim.reset("lazy")
    side = torch.Stream(device=D)
    value = torch.ones(100, device=D)
    side.wait_event(torch.accelerator.current_stream().record_event())
    with side:
        copy = value.to("cpu", non_blocking=True)
    value.record_stream(side)
    address = value.data_ptr()
    del value
    assert torch.empty(100, device=D).data_ptr() != address
    side.synchronize()
    assert copy.tolist() == [1.0] * 100
    assert torch.empty(100, device=D).data_ptr() == address


def test_statistics_of_the_device(sim: Simulation) -> None:
    gc.collect()  # tensors of failures that earlier tests caught
    torch.accelerator.empty_cache()
    torch.accelerator.reset_peak_memory_stats()
    start = torch.accelerator.memory_allocated()
    value = torch.empty(1000, device=D)  # 4000 bytes, 4096 with rounding
    assert torch.accelerator.memory_allocated() == start + 4096
    assert torch.accelerator.memory_stats()["requested_bytes.all.current"] >= 4000
    del value
    assert torch.accelerator.memory_allocated() == start
    assert torch.accelerator.max_memory_allocated() == start + 4096
    assert torch.accelerator.memory_reserved() == start + 4096
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == start
    assert torch.accelerator.memory_allocated(1) == sim.module.memory_allocated(1)


def test_memory_that_runs_out(sim: Simulation) -> None:
    limit = sim.module.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match="memory_limit"):
        torch.empty(limit + 1, dtype=torch.uint8, device=D)
    assert torch.accelerator.memory_stats()["num_ooms"] == 1


def test_cached_memory_is_given_up_before_memory_runs_out(sim: Simulation) -> None:
    size = sim.runtime.memory.limit * 5 // 8
    cached = torch.empty(size, dtype=torch.uint8, device=D)
    del cached
    assert torch.empty(size + 512, dtype=torch.uint8, device=D).numel() == size + 512
    assert torch.accelerator.memory_stats()["num_alloc_retries"] == 1


def test_tensors_survive_a_reset(sim: Simulation) -> None:
    value = torch.arange(4.0, device=D)
    sim.reset("lazy")
    result = value * 2
    del value
    assert result.cpu().tolist() == [0.0, 2.0, 4.0, 6.0]
    assert torch.accelerator.memory_allocated() >= 512


def test_pinned_memory_is_seen_by_torch(sim: Simulation) -> None:
    pinned = torch.empty(4, pin_memory=True)
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert torch.ones(4).pin_memory().is_pinned()
    assert not torch.ones(4).is_pinned()


def test_pinned_memory_is_reused_only_when_no_copy_uses_it(sim: Simulation) -> None:
    sim.reset("lazy")
    target = torch.ones(64, device=D).to("cpu", non_blocking=True)
    address = target.data_ptr()
    del target
    assert torch.empty(64, pin_memory=True).data_ptr() != address
    torch.accelerator.synchronize()
    reused = [torch.empty(64, pin_memory=True) for _ in range(3)]
    assert address in [tensor.data_ptr() for tensor in reused]


def test_statistics_of_pinned_memory(sim: Simulation) -> None:
    platform = sim.platform
    platform.release_host_memory()
    before = platform.host_memory_stats()
    kept = torch.empty(1000, pin_memory=True)  # 4000 bytes, a power of two: 4096
    during = platform.host_memory_stats()
    assert before is not None
    assert during is not None
    assert platform.pinned_allocation_bytes(4000) == 4096
    assert during["active_bytes.current"] == before["active_bytes.current"] + 4096
    assert during["num_host_alloc"] == before["num_host_alloc"] + 1
    del kept
    assert platform.release_host_memory() is True
    assert (
        platform.host_memory_stats()["allocated_bytes.current"]
        == (  # type: ignore[index]
            before["allocated_bytes.current"]
        )
    )


def test_registered_memory_takes_asynchronous_copies(sim: Simulation) -> None:
    sim.reset("lazy")
    buffer = mmap.mmap(-1, 4096)
    registered = sim.platform.register_host_memory(buffer)
    assert registered is not None
    target = registered.tensor[:16].view(torch.float32)
    assert target.is_pinned()
    target.copy_(torch.full((4,), 7.0, device=D), non_blocking=True)
    assert target.isnan().all()
    assert sim.host_waits == 0
    with pytest.raises(HostRegistrationError, match="Wait for the copies"):
        registered.close()
    torch.accelerator.synchronize()
    assert target.tolist() == [7.0] * 4
    registered.close()
    assert not target.is_pinned()


def test_memory_is_registered_once(sim: Simulation) -> None:
    memory = torch.zeros(4096, dtype=torch.uint8)
    with sim.platform.register_host_memory(memory):  # type: ignore[union-attr]
        with pytest.raises(HostRegistrationError, match="pinned already"):
            sim.platform.register_host_memory(memory[10:20])
        with pytest.raises(HostRegistrationError, match="pinned already"):
            sim.platform.register_host_memory(torch.ones(4).pin_memory())
    with sim.platform.register_host_memory(memory):  # type: ignore[union-attr]
        assert memory.is_pinned()
    with pytest.raises(HostRegistrationError, match="no memory is registered"):
        sim.runtime.pinned.unregister(memory.data_ptr())


def test_storages_grow(sim: Simulation) -> None:
    sim.reset("lazy")
    value = torch.ones(3, device=D)
    value.resize_(2, 600)
    assert value.shape == (2, 600)
    assert value[0, :3].cpu().tolist() == [1.0] * 3
    assert value.untyped_storage().nbytes() == 4800
