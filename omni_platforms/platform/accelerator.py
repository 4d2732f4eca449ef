"""`AcceleratorPlatform`: what all vendors share, through torch's generic interface.

Vendor packages derive from it and add only what differs. Nothing here names a
vendor; everything goes through `torch.Stream`, `torch.Event` and
`torch.accelerator`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from omni_platforms.platform.interface import DeviceLike, OmniPlatform


class StreamContext(AbstractContextManager[None]):
    """Enters a stream and leaves it, with the previous stream kept in this object.

    `with torch.Stream` keeps the previous stream on the stream object itself,
    so two threads that enter one stream restore each other's. This does not.
    """

    __slots__ = ("_device", "_previous", "_stream")

    def __init__(self, stream: torch.Stream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        index = self._stream.device.index
        self._device = torch.accelerator.current_device_index()
        self._previous = torch.accelerator.current_stream(index)
        torch.accelerator.set_stream(self._stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        torch.accelerator.set_stream(self._previous)
        if self._device != self._previous.device.index:
            torch.accelerator.set_device_index(self._device)


class AcceleratorPlatform(OmniPlatform):
    """Streams, events, devices and pinned memory through `torch.accelerator`."""

    def device_count(self) -> int:
        """Count the devices that this process may use."""
        return torch.accelerator.device_count()

    def current_device(self) -> torch.device:
        """Return the calling thread's current device."""
        return torch.device(self.device_type, torch.accelerator.current_device_index())

    def is_current_device(self, device: torch.device) -> bool:
        """Compare the indices: every submit asks, and making a `torch.device` costs more."""
        return device.index == torch.accelerator.current_device_index()

    def set_device(self, device: DeviceLike) -> None:
        """Make `device` the calling thread's current device."""
        torch.accelerator.set_device_index(self.resolve_device(device).index)

    def current_stream(self, device: DeviceLike = None) -> torch.Stream | None:
        """Return the calling thread's current stream on `device`."""
        if device is None:
            return torch.accelerator.current_stream()
        return torch.accelerator.current_stream(self.resolve_device(device))

    def current_stream_key(self, device: torch.device) -> int | None:
        """Return torch's id of the calling thread's current stream on `device`."""
        stream = self.current_stream(device)
        return None if stream is None else stream.stream_id

    def create_side_stream(
        self, device: DeviceLike = None, *, priority: int = 0
    ) -> torch.Stream | None:
        """Return a new generic stream on `device`."""
        return torch.Stream(device=self.resolve_device(device), priority=priority)

    def stream_context(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """Make `stream` the calling thread's current stream inside a `with` block."""
        return super().stream_context(None) if stream is None else StreamContext(stream)

    def record_device_event(self, stream: torch.Stream | None = None) -> torch.Event | None:
        """Record a generic event on `stream`, or on the calling thread's current stream."""
        if stream is None:
            event = torch.Event(self.device_type)
            event.record()  # asks for the current stream in C++: half the time of asking here
        else:
            event = torch.Event(stream.device)
            event.record(stream)
        return event

    def pinned_empty(
        self, shape: tuple[int, ...] | torch.Size, dtype: torch.dtype
    ) -> torch.Tensor | None:
        """Return pinned memory of torch's caching host allocator."""
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)

    def pinned_allocation_bytes(self, nbytes: int) -> int:
        """Return the next power of two: torch's caching host allocator rounds up to it.

        Source: torch 2.13, `ATen/core/CachingHostAllocator.h`.
        """
        return 1 << max(0, nbytes - 1).bit_length() if nbytes else 0

    def empty_cache(self) -> None:
        """Give cached device memory back to the system."""
        torch.accelerator.empty_cache()
