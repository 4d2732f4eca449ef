"""Quirks of torch_npu 2.14.0; the facts are cited in `vendors/npu.py`."""

from __future__ import annotations

import importlib.util
import mmap
import os
import sys
import warnings

import pytest
import torch

from omni_platforms.simulator import Simulation


def check_the_package_is_one_that_imports(sim: Simulation) -> None:
    import torch_npu
    import torch_npu.npu
    from torch_npu.profiler import ProfilerActivity

    assert torch.npu is torch_npu.npu is sys.modules["torch.npu"]
    assert torch_npu.__version__ == "2.14.0"
    assert importlib.util.find_spec("torch_npu") is not None
    assert ProfilerActivity.NPU is not torch.profiler.ProfilerActivity.PrivateUse1


def check_the_name_ignores_the_index(sim: Simulation) -> None:
    assert torch.npu.get_device_name(0) == torch.npu.get_device_name(1)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.npu.get_device_name(2)


def check_the_capability_is_none_with_a_warning(sim: Simulation) -> None:
    with pytest.warns(UserWarning, match="TORCH_NPU_DEVICE_CAPABILITY"):
        assert torch.npu.get_device_capability() is None
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("TORCH_NPU_DEVICE_CAPABILITY", "8.0")
        assert torch.npu.get_device_capability() == (8, 0)
        patch.setenv("TORCH_NPU_DEVICE_CAPABILITY", "eight")
        assert torch.npu.get_device_capability() is None


def check_devices_have_unique_ids(sim: Simulation) -> None:
    ids = {torch.npu.get_device_properties(index).uuid for index in range(2)}
    assert len(ids) == 2


def check_priorities_cannot_be_asked_for(sim: Simulation) -> None:
    stream = torch.npu.Stream(priority=-1)
    with pytest.raises(RuntimeError, match=r"Stream\.priority "):
        _ = stream.priority
    with pytest.raises(RuntimeError, match="priority_range"):
        torch.npu.Stream.priority_range()


def check_any_priority_but_zero_is_high(sim: Simulation) -> None:
    def given(priority: int) -> int:
        stream = torch.Stream(device="npu", priority=priority)
        return sim.runtime.scheduler.queue((0, stream.stream_id)).priority

    assert [given(p) for p in (-1, 0, 1)] == [-1, 0, -1]


def check_the_vendors_elapsed_time_waits(sim: Simulation) -> None:
    sim.reset("lazy")
    start, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(3, device="npu").add_(1)
    end.record()
    assert start.elapsed_time(end) > 0
    assert sim.host_waits == 2


def check_registration(sim: Simulation) -> None:
    page = mmap.mmap(-1, 8192)
    memory = torch.frombuffer(page, dtype=torch.uint8)
    calls, pointer = torch.npu.npurt(), memory.data_ptr()
    mapped, pinned = 0x2, 0x10000000
    assert calls.npuHostRegister(pointer, 8192, 0) != 0
    assert calls.npuHostRegister(pointer + 1, 4096, mapped) != 0
    assert calls.npuHostRegister(pointer, 8192, mapped) == 0
    assert memory.is_pinned()
    assert calls.npuHostRegister(pointer, 8192, mapped) != 0
    assert calls.npuHostUnregister(pointer) == 0
    assert calls.npuHostUnregister(pointer) != 0
    assert not memory.is_pinned()
    assert calls.npuHostRegister(pointer + 1, 100, pinned) == 0
    assert calls.npuHostUnregister(pointer + 1) == 0


def check_host_memory_statistics(sim: Simulation) -> None:
    kept = torch.empty(1 << 16, dtype=torch.uint8, pin_memory=True)
    held = torch.npu.host_memory_stats()["allocated_bytes.current"]
    assert held >= kept.numel()
    del kept
    torch.npu.host_empty_cache()
    assert torch.npu.host_memory_stats()["allocated_bytes.current"] <= held - (1 << 16)


def check_sync_debug(sim: Simulation) -> None:
    value = torch.ones(1, device="npu")
    try:
        torch.npu.set_sync_debug_mode("error")
        with pytest.raises(RuntimeError, match=r"synchronizing operation \(item\)"):
            value.item()
        with pytest.raises(RuntimeError, match="copy to host"):
            value.cpu()
        torch.npu.synchronize()  # asked for
        torch.npu.set_sync_debug_mode(1)
        with pytest.warns(UserWarning, match="item"):
            assert value.item() == 1
        assert torch.npu.get_sync_debug_mode() == 1
        with pytest.raises(RuntimeError, match="invalid value"):
            torch.npu.set_sync_debug_mode("loud")
    finally:
        torch.npu.set_sync_debug_mode("default")
    assert value.item() == 1


def check_what_is_not_simulated_says_so(sim: Simulation) -> None:
    assert not hasattr(torch.npu, "set_aoe")
    with pytest.raises(AttributeError, match=r"set_aoe of torch_npu 2\.14\.0 is not simulated"):
        _ = torch.npu.set_aoe
    with pytest.raises(AttributeError, match="nor has torch_npu"):
        _ = torch.npu.no_such_thing


def check_a_bare_fork_is_not_seen(sim: Simulation) -> None:
    """torch_npu looks through multiprocessing alone; the simulated device refuses anyway."""
    pid = os.fork()
    if not pid:
        os._exit(int(torch.npu._is_in_bad_fork()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def check_graphs(sim: Simulation) -> None:
    static, graph = torch.zeros(2, device="npu"), torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=False):
        output = static + 1
    static.fill_(3)
    graph.replay()
    assert output.cpu().tolist() == [4.0, 4.0]
