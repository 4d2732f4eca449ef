"""`MusaPlatform`: what Moore Threads devices add to torch's generic interface.

From torch_musa 2.7.1, read and not run on hardware: paths are those of its
source. It has no float64 (one engine's report), which is a matter of models.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch_musa

from omni_platforms.platform.accelerator import AcceleratorPlatform
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, MemoryInfo
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms_musa import registration
from omni_platforms_musa.plugin import VARIABLE

_musa: Any = torch_musa  # also `torch.musa`, which type checkers do not know
# torch.accelerator has it from 2.12 on.
_empty_host_cache: Any = getattr(torch.accelerator, "empty_host_cache", None)
# torch_musa/musa_graph/graphs.py; looked for, as not every release says so.
_is_capturing: Any = getattr(_musa, "is_current_stream_capturing", None)


def _capabilities() -> frozenset[Capability]:
    """Return what this torch_musa has.

    Not among them: a unique id (`csrc/core/Module.cpp`), statistics of pinned
    memory, and a switch that reports waits, which exists in C++ only.
    """
    lacking = {Capability.DEVICE_UUID, Capability.HOST_MEMORY_STATS, Capability.SYNC_DEBUG}
    if _empty_host_cache is None:
        lacking.add(Capability.RELEASE_HOST_MEMORY)
    if _is_capturing is None:
        lacking.add(Capability.GRAPH_CAPTURE)
    return frozenset(Capability) - lacking


class MusaPlatform(AcceleratorPlatform):
    """Moore Threads GPUs, through torch_musa."""

    name: ClassVar[str] = "musa"
    vendor: ClassVar[str] = "moorethreads"
    device_type: ClassVar[str] = "musa"
    dist_backend: ClassVar[str] = "mccl"
    device_control_env_var: ClassVar[str | None] = VARIABLE
    capabilities: ClassVar[frozenset[Capability]] = _capabilities()
    conformance_tier: ClassVar[str | None] = "T5"

    # Devices ------------------------------------------------------------------

    def device_name(self, index: int = 0) -> str:
        """Return the model name."""
        return str(_musa.get_device_name(index))

    def device_capability(self, index: int = 0) -> tuple[int, int] | None:
        """Return the compute capability (`core/device.py`)."""
        major, minor = _musa.get_device_capability(index)
        return major, minor

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total device memory in bytes (`core/memory.py`)."""
        free, total = _musa.mem_get_info(self.resolve_device(device))
        return MemoryInfo(free, total)

    def synchronize(self, device: DeviceLike = None) -> None:
        """Block the host until all work enqueued on `device` is done.

        `torch.accelerator.synchronize` raises: the guard lacks `synchronizeDevice`
        (`csrc/core/GuardImpl.h`).
        """
        _musa.synchronize(self.resolve_device(device))

    def empty_cache(self) -> None:
        """Give cached device memory back; torch's generic call fails before 2.11.0.post2."""
        _musa.empty_cache()

    # Ordering -----------------------------------------------------------------

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream is capturing a graph."""
        if _is_capturing is None or not _musa.is_initialized():
            return False
        if device is None:
            return bool(_is_capturing())
        with _musa.device(self.resolve_device(device)):
            return bool(_is_capturing())

    # Host memory --------------------------------------------------------------

    def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
        """Pin the existing memory of `buffer`.

        Raises `HostRegistrationError` when MUSA refuses, `TypeError` or
        `ValueError` for memory that cannot be pinned at all.
        """
        return registration.register(buffer)

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system (torch 2.12)."""
        if _empty_host_cache is None:
            return None
        _empty_host_cache()
        return True

    # Diagnostics --------------------------------------------------------------

    @property
    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """`ProfilerActivity.PrivateUse1`, which torch_musa also calls MUSA."""
        return torch.profiler.ProfilerActivity.PrivateUse1
