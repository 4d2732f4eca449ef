"""The CPU platform answers every question with its documented null value."""

from __future__ import annotations

import inspect

import pytest
import torch

from omni_platforms.platform import Capability, CpuPlatform, MemoryInfo, OmniPlatform

NULLS = {
    "create_side_stream": lambda p: p.create_side_stream(priority=-1),
    "current_stream": lambda p: p.current_stream("cpu"),
    "current_stream_key": lambda p: p.current_stream_key(torch.device("cpu")),
    "device_capability": lambda p: p.device_capability(0),
    "device_uuid": lambda p: p.device_uuid(0),
    "empty_cache": lambda p: p.empty_cache(),
    "host_memory_stats": lambda p: p.host_memory_stats(),
    "numa_node": lambda p: p.numa_node(0),
    "pinned_empty": lambda p: p.pinned_empty((2,), torch.float32),
    "record_device_event": lambda p: p.record_device_event(),
    "register_host_memory": lambda p: p.register_host_memory(bytearray(8)),
    "release_host_memory": lambda p: p.release_host_memory(),
    "set_device": lambda p: p.set_device("cpu"),
    "sync_debug": lambda p: p.sync_debug("warn"),
    "synchronize": lambda p: p.synchronize(),
}
VALUES = {
    "current_device": lambda p: p.current_device() == torch.device("cpu"),
    "device": lambda p: p.device(0) == torch.device("cpu"),
    "device_count": lambda p: p.device_count() == 1,
    "device_name": lambda p: bool(p.device_name()),
    "is_capturing": lambda p: p.is_capturing() is False,
    "is_current_device": lambda p: p.is_current_device(torch.device("cpu")),
    "memory_info": lambda p: 0 < p.memory_info().free <= p.memory_info().total,
    "pinned_allocation_bytes": lambda p: p.pinned_allocation_bytes(5) == 5,
    "profiler_range": lambda p: p.profiler_range("a").__enter__() is not None,
    "resolve_device": lambda p: p.resolve_device() == torch.device("cpu"),
    "stream_context": lambda p: p.stream_context(None).__enter__() is None,
}
# These need a stream or an event, which the CPU has none of.
NEED_MORE = {"stream_wait_event", "synchronize_event"}


@pytest.mark.parametrize("method", NULLS)
def test_what_the_cpu_cannot_do_is_none(method: str) -> None:
    assert NULLS[method](CpuPlatform()) is None


@pytest.mark.parametrize("method", VALUES)
def test_what_the_cpu_can_do_it_does(method: str) -> None:
    assert VALUES[method](CpuPlatform())


def test_no_method_is_left_out() -> None:
    methods = {
        name
        for name, member in inspect.getmembers(OmniPlatform, inspect.isfunction)
        if not name.startswith(("_", "is_")) or name in ("is_capturing", "is_current_device")
    }
    assert methods == {*NULLS, *VALUES, *NEED_MORE}


def test_identity() -> None:
    cpu = CpuPlatform()
    assert cpu.is_cpu()
    others = (cpu.is_cuda, cpu.is_rocm, cpu.is_npu, cpu.is_xpu, cpu.is_musa)
    assert not any(ask() for ask in others)
    assert cpu.capabilities == {Capability.MEMORY_INFO}
    assert isinstance(cpu.memory_info(), MemoryInfo)
    assert cpu.profiler_activity is torch.profiler.ProfilerActivity.CPU


def test_only_torchs_own_event_may_be_waited_for() -> None:
    with pytest.raises(TypeError, match="record_device_event"):
        CpuPlatform().stream_wait_event(torch.Stream("cpu"), object())  # type: ignore[arg-type]


def test_a_device_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="meta"):
        CpuPlatform().resolve_device("meta")
