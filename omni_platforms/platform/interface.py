"""`OmniPlatform`: what an engine may ask of any accelerator.

The rule of the contract: an optional primitive that a platform does not have
returns `None`, and **`None` means "no such guarantee: take the blocking path"**.
It never means "no need to wait". The base class alone therefore gives right
results with every executor, only slower.

Streams and events are torch's generic `torch.Stream` and `torch.Event`.
`torch.Stream.wait_event` has no type check and silently ignores the event
classes of vendors (torch 2.13, `torch/csrc/Stream.cpp`: the generic base of
such an event is never marked as recorded), so nothing else is safe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

import torch

from omni_platforms.platform.capability import Capability
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms.platform.waiting import wait_for_event

DeviceLike = torch.device | str | int | None


class MemoryInfo(NamedTuple):
    """Memory of one device, in bytes."""

    free: int
    total: int


class OmniPlatform:
    """A concrete base whose optional primitives return `None`.

    Unless a docstring says otherwise, methods may be called from any thread,
    do not make the host wait for the device, and act on the calling thread's
    current device where `device` is `None`.
    """

    name: ClassVar[str] = "base"
    """The name that selects it, such as "cuda"."""
    vendor: ClassVar[str] = ""
    device_type: ClassVar[str] = "cpu"
    """torch's device type; "cuda" for ROCm too."""
    dist_backend: ClassVar[str] = "gloo"
    """The `torch.distributed` backend for its tensors."""
    device_control_env_var: ClassVar[str | None] = None
    """The variable that limits which devices a process sees."""
    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    conformance_tier: ClassVar[str | None] = None
    """The highest tier of the conformance suite that it claims, "T0" to "T5", or none."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # Identity -----------------------------------------------------------------

    def is_cuda(self) -> bool:
        """Whether this is NVIDIA CUDA (false on ROCm)."""
        return self.name == "cuda"

    def is_rocm(self) -> bool:
        """Whether this is AMD ROCm."""
        return self.name == "rocm"

    def is_npu(self) -> bool:
        """Whether this is Ascend NPU."""
        return self.name == "npu"

    def is_xpu(self) -> bool:
        """Whether this is Intel XPU."""
        return self.name == "xpu"

    def is_musa(self) -> bool:
        """Whether this is Moore Threads MUSA."""
        return self.name == "musa"

    def is_cpu(self) -> bool:
        """Whether this is the CPU platform."""
        return self.name == "cpu"

    # Devices ------------------------------------------------------------------

    def device_count(self) -> int:
        """Count the devices that this process may use."""
        return 1

    def device(self, index: int = 0) -> torch.device:
        """Return torch's device number `index` of this platform."""
        if self.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(self.device_type, index)

    def current_device(self) -> torch.device:
        """Return the calling thread's current device."""
        return self.device(0)

    def is_current_device(self, device: torch.device) -> bool:
        """Whether `device`, which has an index, is the calling thread's current device."""
        return self.current_device() == device

    def set_device(self, device: DeviceLike) -> None:
        """Make `device` the calling thread's current device.

        A new thread starts on device 0 whatever its creator's device is, so
        every thread that touches a device calls this first.
        """

    def device_name(self, index: int = 0) -> str:
        """Return the model name of device `index`."""
        return self.device_type

    def device_uuid(self, index: int = 0) -> str | None:
        """Return the unique id of device `index`, or `None`."""
        return None

    def device_capability(self, index: int = 0) -> tuple[int, int] | None:
        """Return the compute capability `(major, minor)` of device `index`, or `None`."""
        return None

    def memory_info(self, device: DeviceLike = None) -> MemoryInfo | None:
        """Return free and total memory of `device` in bytes, or `None`."""
        return None

    def synchronize(self, device: DeviceLike = None) -> None:
        """Block the host until all work enqueued on `device` is done."""
        if self.device_type != "cpu":
            torch.accelerator.synchronize(self.resolve_device(device))

    def empty_cache(self) -> None:
        """Give cached device memory back to the system; a no-op where there is no cache."""

    def numa_node(self, index: int = 0) -> int | None:
        """Return the host NUMA node that device `index` is attached to, or `None`."""
        return None

    def resolve_device(self, device: DeviceLike = None) -> torch.device:
        """Return `device` as a `torch.device` of this platform, with its index.

        `None` and a device without an index mean the calling thread's current
        device. Raises `ValueError` for a device of another type.
        """
        if type(device) is torch.device and device.index is not None:
            if device.type == self.device_type:  # the usual case, on the path of every submit
                return device if device.type != "cpu" else self.device(0)
        elif device is None:
            return self.current_device()
        if isinstance(device, int):
            return self.device(device)
        found = torch.device(device)
        if found.type != self.device_type:
            raise ValueError(
                f"device {found} is not a device of platform {self.name!r}, whose devices "
                f"are of type {self.device_type!r}"
            )
        return self.current_device() if found.index is None else self.device(found.index)

    # Ordering -----------------------------------------------------------------

    def current_stream(self, device: DeviceLike = None) -> torch.Stream | None:
        """Return the calling thread's current stream on `device`, or `None`."""
        return None

    def current_stream_key(self, device: torch.device) -> int | None:
        """Return a number that tells the calling thread's current stream from others, or `None`.

        It names the same stream of `device` for as long as the process lives.
        """
        return None

    def create_side_stream(
        self, device: DeviceLike = None, *, priority: int = 0
    ) -> torch.Stream | None:
        """Return a new stream on `device`, or `None`.

        A negative `priority` asks for a high-priority stream where the platform
        tells them apart. The current device and stream stay as they are.
        """
        return None

    def stream_context(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """Make `stream` the calling thread's current stream inside a `with` block.

        The previous stream and device come back at the end, also after an
        exception; several threads may enter one stream at once. `None` changes
        nothing.
        """
        return contextlib.nullcontext()

    def record_device_event(self, stream: torch.Stream | None = None) -> torch.Event | None:
        """Record an event that covers all work enqueued on `stream` so far.

        `None` as `stream` means the calling thread's current stream. The
        answer is exactly a `torch.Event`, already recorded, or `None`: then
        whoever needs the work must synchronize or copy with a blocking call.
        """
        return None

    def stream_wait_event(self, stream: torch.Stream, event: torch.Event) -> None:
        """Make `stream` wait, on the device, for `event`.

        Raises `TypeError` for anything but exactly a `torch.Event`, which
        `torch.Stream` would ignore without a word.
        """
        if type(event) is not torch.Event:
            raise TypeError(
                f"a stream can only wait for a torch.Event, not for a {type(event).__module__}."
                f"{type(event).__qualname__}: torch ignores a vendor's event silently. "
                "Record it with record_device_event()."
            )
        stream.wait_event(event)

    def synchronize_event(self, event: torch.Event, timeout: float | None = None) -> bool:
        """Block the host until `event` is complete; return whether it is.

        Waits at most `timeout` seconds (for ever when `None`), by asking at
        growing intervals: a long wait does not keep a core busy.
        """
        return wait_for_event(event, timeout)

    def is_capturing(self, device: DeviceLike = None) -> bool:
        """Whether the calling thread's current stream is capturing a graph."""
        return False

    # Host memory --------------------------------------------------------------

    def pinned_empty(
        self, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype
    ) -> torch.Tensor | None:
        """Return an uninitialized, contiguous, pinned host tensor, or `None`.

        The memory goes back to the platform's pool when its last view is gone
        and no enqueued copy uses it any more.
        """
        return None

    def pinned_allocation_bytes(self, nbytes: int) -> int:
        """Return how many bytes a pinned allocation of `nbytes` really takes.

        Pinned allocators round up; bounds on memory must count the real size.
        """
        return nbytes

    def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
        """Pin the existing memory of `buffer` (a writable buffer or CPU tensor).

        May block for about 0.4 ms a megabyte on pages that were never touched.
        Returns `None` where the platform cannot register memory, and raises
        `HostRegistrationError` where it can but refused this buffer.
        """
        return None

    def host_memory_stats(self) -> Mapping[str, int] | None:
        """Return the pinned allocator's statistics (bytes and counts), or `None`."""
        return None

    def release_host_memory(self) -> bool | None:
        """Give cached, unused pinned memory back to the system.

        May block until the device has finished with it. Returns `True` when it
        did, `None` where the platform has no such call.
        """
        return None

    # Diagnostics --------------------------------------------------------------

    def sync_debug(self, mode: str) -> AbstractContextManager[None] | None:
        """Return a context in which the runtime reports waits of the host, or `None`.

        `mode` is "warn" or "error". The vendor's switch is usually one for the
        whole process, so other threads' waits are reported too; the previous
        mode comes back at the end.
        """
        return None

    def profiler_range(self, name: str) -> AbstractContextManager[Any]:
        """Return a context that profilers show as one stretch of the calling thread.

        torch's own range, which `torch.profiler` records on every device; a vendor adds its
        profiler's. Does not block. It takes about a microsecond, and some more under a profiler.
        """
        return torch.profiler.record_function(name)

    @property
    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """The activity that makes `torch.profiler` record this device, or `None`."""
        return None
