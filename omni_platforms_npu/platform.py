"""`NpuPlatform`: what Ascend devices add to torch's generic interface.

From torch_npu 2.14.0, read and not run on hardware: paths are those of its
wheel or of its C++ source (`csrc/`). Older ones are looked at for what they have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
import torch_npu

from omni_platforms.platform.accelerator import AcceleratorPlatform
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, MemoryInfo
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms.settings import read
from omni_platforms_npu import registration
from omni_platforms_npu.machine import VARIABLE

_npu: Any = torch_npu.npu  # also `torch.npu`, which type checkers do not know
_SYNC_DEBUG_MODES = ("warn", "error")


def _capabilities() -> frozenset[Capability]:
    """Return what this torch_npu has.

    Not among them: a compute capability, which torch_npu does not know
    (`npu/__init__.py`, `get_device_capability`).
    """
    lacking = {Capability.DEVICE_CAPABILITY}
    has = {
        Capability.HOST_REGISTRATION: hasattr(_npu, "npurt"),
        Capability.HOST_MEMORY_STATS: hasattr(_npu, "host_memory_stats"),
        Capability.RELEASE_HOST_MEMORY: hasattr(_npu, "host_empty_cache"),
        Capability.GRAPH_CAPTURE: hasattr(_npu, "is_current_stream_capturing"),
    }
    lacking.update(capability for capability, there in has.items() if not there)
    return frozenset(Capability) - lacking


class NpuPlatform(AcceleratorPlatform):
    """Ascend NPUs, through torch_npu."""

    name: ClassVar[str] = "npu"
    vendor: ClassVar[str] = "ascend"
    device_type: ClassVar[str] = "npu"
    dist_backend: ClassVar[str] = "hccl"
    device_control_env_var: ClassVar[str | None] = VARIABLE
    capabilities: ClassVar[frozenset[Capability]] = _capabilities()
    conformance_tier: ClassVar[str | None] = "T5"

    def __init__(self) -> None:
        self._host_sync = read("OMNI_NPU_HCCL_HOST_SYNC")

    # Devices ------------------------------------------------------------------

    def device_name(self, index: int = 0) -> str:
        """Return the name of device `index` from its properties.

        `torch.npu.get_device_name` ignores its argument (`npu/__init__.py`).
        """
        return str(_npu.get_device_properties(index).name)

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the unique id of device `index` (`csrc/npu/Module.cpp`)."""
        return str(_npu.get_device_properties(index).uuid)

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total device memory in bytes."""
        free, total = _npu.mem_get_info(self.resolve_device(device))
        return MemoryInfo(free, total)

    def synchronize(self, device: DeviceLike = None) -> None:
        """Block the host until all work enqueued on `device` is done."""
        _npu.synchronize(self.resolve_device(device))

    def empty_cache(self) -> None:
        """Give cached device memory back; torch's own call asserts on torch_npu 2.9 and 2.10."""
        _npu.empty_cache()

    # Ordering -----------------------------------------------------------------

    def create_side_stream(
        self, device: DeviceLike = None, *, priority: int = 0
    ) -> torch.Stream | None:
        """Return a new generic stream; a negative `priority` makes it a high-priority one.

        torch_npu takes every priority but 0 as high, positive ones too
        (`csrc/core/npu/impl/NPUGuardImpl.cpp`).
        """
        return super().create_side_stream(device, priority=-1 if priority < 0 else 0)

    def record_device_event(self, stream: torch.Stream | None = None) -> torch.Event | None:
        """Record a generic event on `stream`, without making the host wait.

        It covers collectives that were waited for on this stream: `Work.wait()`
        makes the current stream wait for HCCL's own one on the device
        (`csrc/distributed/ProcessGroupHCCL.cpp`, `WorkHCCL::synchronizeInternal`).
        `OMNI_NPU_HCCL_HOST_SYNC=1` makes the host wait for the device first, for
        stacks where that was reported not to hold (a 910 with CANN 9.0).
        """
        if self._host_sync:
            _npu.synchronize(None if stream is None else stream.device)
        return super().record_device_event(stream)

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream is capturing a graph (`npu/graphs.py`)."""
        if Capability.GRAPH_CAPTURE not in self.capabilities or not _npu.is_initialized():
            return False
        if device is None:
            return bool(_npu.is_current_stream_capturing())
        with _npu.device(self.resolve_device(device)):
            return bool(_npu.is_current_stream_capturing())

    # Host memory --------------------------------------------------------------

    def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
        """Pin the existing pages of `buffer`; `None` where torch_npu is older than 2.13.

        Raises `HostRegistrationError` when the runtime refuses, `TypeError` or
        `ValueError` for memory that cannot be pinned at all.
        """
        npurt = registration.runtime()
        return None if npurt is None else registration.register(buffer, npurt)

    def host_memory_stats(self) -> Mapping[str, int] | None:
        """Return the pinned allocator's statistics (`npu/memory.py`)."""
        if Capability.HOST_MEMORY_STATS not in self.capabilities:
            return None
        stats = _npu.host_memory_stats()
        return {key: value for key, value in stats.items() if isinstance(value, int)}

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system (`npu/memory.py`)."""
        if Capability.RELEASE_HOST_MEMORY not in self.capabilities:
            return None
        _npu.host_empty_cache()
        return True

    # Diagnostics --------------------------------------------------------------

    def sync_debug(self, mode: str) -> AbstractContextManager[None] | None:
        """Return a context in which torch_npu reports waits of the host ("warn" or "error").

        The switch is one for the whole process (`npu/utils.py`). Raises
        `ValueError` for another mode.
        """
        if mode not in _SYNC_DEBUG_MODES:
            raise ValueError(f"sync_debug mode must be 'warn' or 'error', not {mode!r}")
        return _sync_debug(mode)

    @property
    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """`ProfilerActivity.PrivateUse1`, which torch also calls NPU."""
        return torch.profiler.ProfilerActivity.PrivateUse1


@contextlib.contextmanager
def _sync_debug(mode: str) -> Iterator[None]:
    previous = _npu.get_sync_debug_mode()
    _npu.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        _npu.set_sync_debug_mode(previous)
