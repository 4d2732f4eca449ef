"""The async copy that engines commonly have, and the plain copies that it is compared with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from omni_platforms.platform.interface import OmniPlatform


class Copy(NamedTuple):
    """A copy on its way to the host. It keeps its source; `done` is `None` when it is over."""

    host: Tensor
    done: torch.Event | None
    source: Tensor

    def wait(self) -> Tensor:
        """Block the host until the bytes are there, as engines do: with the vendor's own wait."""
        if self.done is not None:
            self.done.synchronize()
        return self.host


class CommonPath:
    """Copies each tensor on a side stream into pinned memory that is allocated for it.

    Where the platform has no streams, events or pinned memory, it copies with a blocking call.
    """

    def __init__(self, platform: OmniPlatform, device: torch.device) -> None:
        self._platform = platform
        self._side = platform.create_side_stream(device)

    def start(self, value: Tensor) -> Copy:
        """Start to copy `value`, after the work of the current stream; do not wait for it."""
        platform, side = self._platform, self._side
        ready = platform.record_device_event()
        host = platform.pinned_empty(value.shape, value.dtype)
        if side is None or ready is None or host is None:
            return Copy(blocking_copy(value), None, value)
        platform.stream_wait_event(side, ready)
        with platform.stream_context(side):
            host.copy_(value, non_blocking=True)
            done = platform.record_device_event(side)
        return Copy(host, done, value)


class BareCopy:
    """The physical limit: one copy into pinned memory that is there already, and nothing else.

    On a platform without pinned memory it is a copy into ordinary memory that was touched.
    """

    def __init__(self, platform: OmniPlatform, like: Tensor) -> None:
        pinned = platform.pinned_empty(like.shape, like.dtype)
        self.host = torch.zeros_like(like, device="cpu") if pinned is None else pinned.zero_()
        self._platform = platform
        self._overlaps = pinned is not None

    def run(self, value: Tensor) -> Tensor:
        """Copy `value` and block until it is there. The memory is the same each time."""
        self.host.copy_(value, non_blocking=self._overlaps)
        done = self._platform.record_device_event() if self._overlaps else None
        if done is not None:
            done.synchronize()
        elif value.device.type != "cpu":
            self._platform.synchronize(value.device)
        return self.host


def blocking_copy(value: Tensor) -> Tensor:
    """Return a fresh host copy, made with a blocking call: `.cpu()`, but on the CPU, too."""
    return value.clone() if value.device.type == "cpu" else value.cpu()
