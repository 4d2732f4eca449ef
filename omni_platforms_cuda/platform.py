"""`CudaPlatform`: what NVIDIA's devices add to torch's generic interface.

Written for torch 2.7 and later; what only later versions have is looked for,
and its capability declared only where it is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch

from omni_platforms.platform.accelerator import AcceleratorPlatform
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, MemoryInfo
from omni_platforms.platform.numa import pci_numa_node
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms_cuda import registration
from omni_platforms_cuda.visible import VARIABLE

# torch.accelerator has it from 2.12 on; torch._C had it before (2.7, executed on 2.13).
_empty_host_cache = getattr(torch.accelerator, "empty_host_cache", None) or getattr(
    torch._C, "_host_emptyCache", None
)
_host_memory_stats = getattr(torch.cuda, "host_memory_stats", None)

# What torch's compiled graphs use (torch 2.13, `torch/_inductor`); looked for, as it is private.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

_SYNC_DEBUG_MODES = ("warn", "error")


def _capabilities() -> frozenset[Capability]:
    lacking = set()
    if _empty_host_cache is None:
        lacking.add(Capability.RELEASE_HOST_MEMORY)
    if _host_memory_stats is None:
        lacking.add(Capability.HOST_MEMORY_STATS)
    return frozenset(Capability) - lacking


class CudaPlatform(AcceleratorPlatform):
    """NVIDIA devices, through a CUDA build of torch."""

    name: ClassVar[str] = "cuda"
    vendor: ClassVar[str] = "nvidia"
    device_type: ClassVar[str] = "cuda"
    dist_backend: ClassVar[str] = "nccl"
    device_control_env_var: ClassVar[str | None] = VARIABLE
    capabilities: ClassVar[frozenset[Capability]] = _capabilities()
    conformance_tier: ClassVar[str | None] = "T5"

    # Devices ------------------------------------------------------------------

    def device_name(self, index: int = 0) -> str:
        """Return the model name, such as "NVIDIA H200"; creates the CUDA context."""
        return torch.cuda.get_device_name(index)

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the UUID as nvidia-smi writes it, "GPU-..."; creates the CUDA context."""
        uuid = str(torch.cuda.get_device_properties(index).uuid)
        return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"

    def device_capability(self, index: int = 0) -> tuple[int, int] | None:
        """Return the compute capability, such as `(9, 0)`; creates the CUDA context."""
        return torch.cuda.get_device_capability(index)

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total device memory in bytes, as the driver sees all processes."""
        free, total = torch.cuda.mem_get_info(self.resolve_device(device))
        return MemoryInfo(free, total)

    def empty_cache(self) -> None:
        """Give cached device memory back to the driver; may wait for the device."""
        torch.cuda.empty_cache()

    def numa_node(self, index: int = 0) -> int | None:
        """Return the host NUMA node of device `index`, or `None` where nobody knows it."""
        properties: Any = torch.cuda.get_device_properties(index)
        if not hasattr(properties, "pci_bus_id"):  # an older torch does not tell
            return None
        return pci_numa_node(
            properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
        )

    # Ordering -----------------------------------------------------------------

    def current_stream_key(self, device: torch.device) -> int | None:
        """Return the CUDA stream's handle, in a tenth of the time of asking for the stream."""
        if _raw_stream is None:
            return super().current_stream_key(device)
        return int(_raw_stream(device.index))

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream on `device` is capturing a CUDA graph."""
        # Without a context nothing is captured, and entering a device would create one.
        if not _is_initialized():
            return False
        if device is None:
            return torch.cuda.is_current_stream_capturing()
        with torch.cuda.device(self.resolve_device(device)):
            return torch.cuda.is_current_stream_capturing()

    # Host memory --------------------------------------------------------------

    def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
        """Pin the existing memory of `buffer`, for every device of this process.

        Blocks for about 0.4 ms a megabyte on pages that were never touched.
        Raises `HostRegistrationError` when CUDA refuses, `TypeError` or
        `ValueError` for memory that cannot be pinned at all.
        """
        return registration.register(buffer)

    def host_memory_stats(self) -> Mapping[str, int] | None:
        """Return the pinned allocator's statistics; empty before CUDA is first used."""
        if _host_memory_stats is None:
            return None
        return {key: value for key, value in _host_memory_stats().items() if isinstance(value, int)}

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system; may wait for the device."""
        if _empty_host_cache is None:
            return None
        if _is_initialized():  # nothing is cached before
            _empty_host_cache()
        return True

    # Diagnostics --------------------------------------------------------------

    def sync_debug(self, mode: str) -> AbstractContextManager[None] | None:
        """Return a context in which torch reports waits of the host ("warn" or "error").

        The switch is one for the whole process (torch 2.13,
        `torch.cuda.set_sync_debug_mode`), and using it creates the CUDA context.
        Raises `ValueError` for another mode.
        """
        if mode not in _SYNC_DEBUG_MODES:
            raise ValueError(f"sync_debug mode must be 'warn' or 'error', not {mode!r}")
        return _sync_debug(mode)

    def profiler_range(self, name: str) -> AbstractContextManager[Any]:
        """Return torch's range with an NVTX range around it, which Nsight Systems shows.

        A ROCm build of torch makes it a roctx range (`torch.cuda.nvtx`, torch 2.13).
        """
        return _nvtx_range(name, super().profiler_range(name))

    @property
    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """`ProfilerActivity.CUDA`."""
        return torch.profiler.ProfilerActivity.CUDA


def _is_initialized() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _nvtx_range(name: str, inner: AbstractContextManager[Any]) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
    try:
        with inner:
            yield
    finally:
        torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _sync_debug(mode: str) -> Iterator[None]:
    previous = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(previous)
