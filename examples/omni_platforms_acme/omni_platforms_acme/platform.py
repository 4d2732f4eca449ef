"""`AcmePlatform`: what Acme's devices add to torch's generic interface.

Facts are from omni-platforms 0.1, `omni_platforms/simulator/device_module.py`, which is
the module `torch.sim`. A real plugin names the package and version of its vendor here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from omni_platforms.platform import AcceleratorPlatform, Capability, DeviceLike, MemoryInfo

_acme: Any = torch.get_device_module("sim")
# torch.accelerator has it from 2.12 on.
_empty_host_cache: Any = getattr(torch.accelerator, "empty_host_cache", None)


def _capabilities() -> frozenset[Capability]:
    """Return what this stack has.

    Not among them: registering memory that exists, and a switch that reports
    waits, for which `torch.sim` has no call; and priorities of streams.
    """
    lacking = {
        Capability.HOST_REGISTRATION,
        Capability.SYNC_DEBUG,
        Capability.STREAM_PRIORITIES,
    }
    if _empty_host_cache is None:
        lacking.add(Capability.RELEASE_HOST_MEMORY)
    return frozenset(Capability) - lacking


class AcmePlatform(AcceleratorPlatform):
    """Acme's devices, through `torch.sim`."""

    name: ClassVar[str] = "acme"
    vendor: ClassVar[str] = "acme"
    device_type: ClassVar[str] = "sim"
    dist_backend: ClassVar[str] = "simccl"
    capabilities: ClassVar[frozenset[Capability]] = _capabilities()
    conformance_tier: ClassVar[str | None] = "T5"

    # Devices ------------------------------------------------------------------

    def device_name(self, index: int = 0) -> str:
        """Return the model name."""
        return str(_acme.get_device_name(index))

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the unique id."""
        return str(_acme.get_device_properties(index).uuid)

    def device_capability(self, index: int = 0) -> tuple[int, int] | None:
        """Return the compute capability."""
        major, minor = _acme.get_device_capability(index)
        return major, minor

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total device memory in bytes."""
        free, total = _acme.mem_get_info(self.resolve_device(device))
        return MemoryInfo(free, total)

    # Ordering -----------------------------------------------------------------

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream on `device` is capturing a graph."""
        if device is None:
            return bool(_acme.is_current_stream_capturing())
        with _acme.device(self.resolve_device(device)):
            return bool(_acme.is_current_stream_capturing())

    # Host memory --------------------------------------------------------------

    def host_memory_stats(self) -> Mapping[str, int] | None:
        """Return the pinned allocator's statistics."""
        stats = _acme.host_memory_stats()
        return {key: value for key, value in stats.items() if isinstance(value, int)}

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system (torch 2.12)."""
        if _empty_host_cache is None:
            return None
        _empty_host_cache()
        return True
