"""The CPU platform: the embedded default, and the reference for every null value.

It inherits every `None` of the base: the CPU has no asynchronous work to wait
for, so every executor takes its blocking path here. torch itself agrees:
`torch.Event("cpu").record()` raises "cpu backend doesn't support events", and
pinned memory needs an accelerator (torch 2.13, executed).
"""

from __future__ import annotations

import platform as _system
from typing import ClassVar

import psutil
import torch

from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, MemoryInfo, OmniPlatform


class CpuPlatform(OmniPlatform):
    """Tensors on the host, blocking copies, gloo collectives."""

    name: ClassVar[str] = "cpu"
    vendor: ClassVar[str] = "cpu"
    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.MEMORY_INFO})
    conformance_tier: ClassVar[str | None] = "T5"

    def device_name(self, index: int = 0) -> str:
        """Return the processor's architecture, as the system names it."""
        return _system.processor() or _system.machine() or "cpu"

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return available and total host memory in bytes (psutil)."""
        memory = psutil.virtual_memory()
        return MemoryInfo(free=memory.available, total=memory.total)

    @property
    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """`ProfilerActivity.CPU`."""
        return torch.profiler.ProfilerActivity.CPU
