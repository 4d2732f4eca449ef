"""`XpuPlatform`: what Intel devices add to torch's generic interface.

From torch 2.13.0 (`torch/xpu/`), read and not run on hardware; what only other
releases have is looked for.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from omni_platforms.platform.accelerator import AcceleratorPlatform
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, MemoryInfo
from omni_platforms_xpu.machine import VARIABLE

# torch.accelerator has it from 2.12 on.
_empty_host_cache: Any = getattr(torch.accelerator, "empty_host_cache", None)
# XPU graphs came with 2.11.
_is_capturing: Any = getattr(torch.xpu, "is_current_stream_capturing", None)


def _capabilities() -> frozenset[Capability]:
    """Return what this torch has.

    Not among them: registering memory that exists (no call in torch up to 2.14),
    statistics of pinned memory, a switch that reports waits, and a numbered
    capability (`get_device_capability` is a dictionary of features).
    """
    lacking = {
        Capability.HOST_REGISTRATION,
        Capability.HOST_MEMORY_STATS,
        Capability.SYNC_DEBUG,
        Capability.DEVICE_CAPABILITY,
    }
    if _empty_host_cache is None:
        lacking.add(Capability.RELEASE_HOST_MEMORY)
    if _is_capturing is None:
        lacking.add(Capability.GRAPH_CAPTURE)
    return frozenset(Capability) - lacking


class XpuPlatform(AcceleratorPlatform):
    """Intel devices, through an XPU build of torch."""

    name: ClassVar[str] = "xpu"
    vendor: ClassVar[str] = "intel"
    device_type: ClassVar[str] = "xpu"
    dist_backend: ClassVar[str] = "xccl"
    device_control_env_var: ClassVar[str | None] = VARIABLE
    capabilities: ClassVar[frozenset[Capability]] = _capabilities()
    conformance_tier: ClassVar[str | None] = "T5"

    # Devices ------------------------------------------------------------------

    def device_name(self, index: int = 0) -> str:
        """Return the model name."""
        return torch.xpu.get_device_name(index)

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the unique id, as hexadecimal digits where torch gives bytes."""
        uuid: Any = torch.xpu.get_device_properties(index).uuid
        return uuid.hex() if isinstance(uuid, bytes) else str(uuid)

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total device memory in bytes."""
        free, total = torch.xpu.mem_get_info(self.resolve_device(device))
        return MemoryInfo(free, total)

    def empty_cache(self) -> None:
        """Give cached device memory back to the driver."""
        torch.xpu.empty_cache()

    # Ordering -----------------------------------------------------------------

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream is capturing a graph (torch 2.11)."""
        if _is_capturing is None or not _is_initialized():
            return False
        if device is None:
            return bool(_is_capturing())
        with torch.xpu.device(self.resolve_device(device)):
            return bool(_is_capturing())

    # Host memory --------------------------------------------------------------

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system (torch 2.12)."""
        if _empty_host_cache is None:
            return None
        if _is_initialized():
            _empty_host_cache()
        return True

    # Diagnostics --------------------------------------------------------------

    @property
    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """`ProfilerActivity.XPU`."""
        return torch.profiler.ProfilerActivity.XPU


def _is_initialized() -> bool:
    return bool(torch.xpu.is_initialized())  # type: ignore[no-untyped-call]
