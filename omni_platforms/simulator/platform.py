"""The platform object of a simulated accelerator without a vendor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from omni_platforms.platform.accelerator import AcceleratorPlatform
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import DeviceLike, MemoryInfo
from omni_platforms.platform.registration import RegisteredHostMemory, as_byte_tensor
from omni_platforms.simulator.runtime import Runtime


class SimulatedPlatform(AcceleratorPlatform):
    """A platform whose devices are simulated in this process."""

    name: ClassVar[str] = "sim"
    vendor: ClassVar[str] = "Simulated"
    device_type: ClassVar[str] = "sim"
    dist_backend: ClassVar[str] = "simccl"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.DEVICE_EVENTS,
            Capability.SIDE_STREAMS,
            Capability.PINNED_MEMORY,
            Capability.HOST_REGISTRATION,
            Capability.HOST_MEMORY_STATS,
            Capability.RELEASE_HOST_MEMORY,
            Capability.MEMORY_INFO,
            Capability.DEVICE_UUID,
            Capability.DEVICE_CAPABILITY,
            Capability.GRAPH_CAPTURE,
        }
    )
    conformance_tier: ClassVar[str | None] = "T5"

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def host_waits(self) -> int:
        """How often any thread of the host waited for a device in this run; queries do not."""
        return self._runtime.scheduler.host_waits.total()

    @property
    def _module(self) -> Any:
        return torch.get_device_module(self.device_type)

    def device_name(self, index: int = 0) -> str:
        """Return the model name of device `index`."""
        return str(self._module.get_device_name(index))

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the unique id of device `index`."""
        return str(self._module.get_device_properties(index).uuid)

    def device_capability(self, index: int = 0) -> tuple[int, int] | None:
        """Return the compute capability of device `index`."""
        major, minor = self._module.get_device_capability(index)
        return int(major), int(minor)

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total memory of `device` in bytes."""
        return MemoryInfo(*self._module.mem_get_info(self.resolve_device(device)))

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream on `device` captures a graph."""
        index = -1 if device is None else self.resolve_device(device).index
        return self._runtime.current_queue(index).capture is not None

    def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
        """Pin the existing memory of `buffer` (a writable buffer or CPU tensor).

        Raises `HostRegistrationError` for memory that is pinned already.
        """
        flat = as_byte_tensor(buffer)
        pointer = flat.data_ptr()
        self._runtime.pinned.register(pointer, flat.numel())
        return RegisteredHostMemory(flat, lambda: self._runtime.pinned.unregister(pointer))

    def host_memory_stats(self) -> Mapping[str, int] | None:
        """Return the pinned allocator's statistics (bytes and counts)."""
        return self._runtime.pinned.statistics()

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system; does not block."""
        self._runtime.pinned.release_cached()
        return True
