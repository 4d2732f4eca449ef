"""Quirks of torch.xpu, which is torch's own module here; see `vendors/xpu.py`."""

from __future__ import annotations

import os

import pytest
import torch

from omni_platforms.simulator import Simulation


def check_the_type_is_the_real_one(sim: Simulation) -> None:
    assert torch.device("xpu", 0).type == "xpu"
    assert torch.ones(1).xpu().is_xpu
    assert torch._C._get_privateuse1_backend_name() == "privateuseone"
    assert torch.xpu._is_compiled()
    assert torch.xpu.is_initialized()


def check_there_is_no_default_stream(sim: Simulation) -> None:
    assert not hasattr(torch.xpu, "default_stream")
    with torch.xpu.stream(torch.xpu.Stream()):
        assert torch.xpu.current_stream().stream_id != 0
    assert torch.xpu.current_stream().stream_id == 0


def check_the_capability_is_a_dictionary(sim: Simulation) -> None:
    capability = torch.xpu.get_device_capability()
    assert isinstance(capability, dict)
    assert capability["has_fp64"] is True
    assert "uuid" not in capability  # bytes are left out
    assert len({torch.xpu.get_device_properties(i).uuid for i in range(2)}) == 2


def check_events_take_no_blocking(sim: Simulation) -> None:
    with pytest.raises(TypeError, match="blocking"):
        torch.xpu.Event(blocking=True)
    with pytest.raises(TypeError, match="interprocess"):
        torch.xpu.Event(interprocess=True)


def check_what_the_vendor_lacks_is_missing(sim: Simulation) -> None:
    for name in ("host_memory_stats", "set_sync_debug_mode", "cudart", "host_register"):
        assert not hasattr(torch.xpu, name)


def ignored(event: torch.Event, *, generic_stream: bool) -> None:
    side = torch.Stream(device="xpu") if generic_stream else torch.xpu.Stream()
    value = torch.ones(4, device="xpu") * 2
    event.record()
    side.wait_event(event)
    with side:
        copy = value.to("cpu", non_blocking=True)
    side.synchronize()
    assert copy.tolist() == [2.0] * 4


def check_a_generic_stream_silently_ignores_a_native_event(sim: Simulation) -> None:
    found = sim.explore(lambda: ignored(torch.xpu.Event(), generic_stream=True))
    assert found.failed("lazy:0.0")


def check_the_other_pairs_wait(sim: Simulation) -> None:
    for scenario in (
        lambda: ignored(torch.xpu.Event(), generic_stream=False),
        lambda: ignored(torch.Event(device="xpu"), generic_stream=False),
        lambda: ignored(torch.Event(device="xpu"), generic_stream=True),
    ):
        found = sim.explore(scenario, seeds=20)
        assert found.ok, str(found)


def check_a_native_event_takes_generic_streams(sim: Simulation) -> None:
    sim.reset("lazy")
    event, stream = torch.xpu.Event(enable_timing=True), torch.Stream(device="xpu")
    assert repr(event) == "torch.xpu.Event(uninitialized)"
    event.record(stream)
    event.wait(stream)
    assert "sycl_event" in repr(event)
    with pytest.raises(RuntimeError, match=r"torch\.Event object"):
        stream.record_event(torch.xpu.Event())


def check_priorities(sim: Simulation) -> None:
    assert torch.xpu.Stream.priority_range() == (1, -1)
    assert [torch.xpu.Stream(priority=p).priority for p in (-5, -1, 0, 1, 9)] == [-1, -1, 0, 1, 1]


def check_memory_statistics_of_the_module(sim: Simulation) -> None:
    kept = torch.empty(4096, dtype=torch.uint8, device="xpu")
    stats = torch.xpu.memory_stats()
    assert stats["allocated_bytes.all.current"] >= kept.numel()
    assert stats["allocated_bytes.small_pool.current"] >= kept.numel()
    torch.xpu.reset_peak_memory_stats()
    torch.xpu.empty_cache()
    torch.xpu.synchronize(1)


def check_devices_of_the_module(sim: Simulation) -> None:
    torch.xpu.set_device(1)
    assert torch.xpu.current_device() == 1
    assert torch.xpu.current_stream().device_index == 1
    assert torch.xpu.get_device_name(1).startswith("Simulated")
    with pytest.raises(RuntimeError):
        torch.xpu.get_device_properties(2)


def check_storages_are_resized(sim: Simulation) -> None:
    value = torch.arange(4, dtype=torch.float32, device="xpu")
    view = value[2:]
    value.untyped_storage().resize_(64)
    assert value.untyped_storage().nbytes() == 64
    assert view.cpu().tolist() == [2.0, 3.0]


def check_a_bare_fork_is_seen(sim: Simulation) -> None:
    torch.ones(1, device="xpu")
    pid = os.fork()
    if not pid:
        os._exit(int(torch.xpu._is_in_bad_fork() and not torch.xpu.is_initialized()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def check_graphs(sim: Simulation) -> None:
    static, graph = torch.zeros(2, device="xpu"), torch.accelerator.Graph()
    with torch.Stream(device="xpu"), graph:
        output = static + 1
        assert torch.xpu.is_current_stream_capturing()
    static.fill_(3)
    graph.replay()
    assert output.cpu().tolist() == [4.0, 4.0]
