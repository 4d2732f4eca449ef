"""Copies of small outputs: on the caller's own stream, into pinned buffers that serve again.

A few kilobytes keep the device busy for about two microseconds, while making a
side stream wait for them costs the host more than the copy itself. The buffers
are kept by shape and type, because the outputs of a loop are alike.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import torch

from omni_platforms.outputs.host_copy import start_copy
from omni_platforms.platform.interface import OmniPlatform

SMALL_BYTES = 64 << 10
"""Outputs of up to this many bytes are copied on the caller's stream."""

_MAX_HELD_BYTES = 4 << 20


class SmallCopies:
    """Starts small copies, and keeps the pinned buffers between them. Any thread may call it."""

    def __init__(self, platform: OmniPlatform) -> None:
        self._platform = platform
        self._free: dict[tuple[torch.Size, torch.dtype], list[torch.Tensor]] = {}
        self._held_bytes = 0
        self._lock = threading.Lock()

    def start(self, leaf: torch.Tensor) -> torch.Tensor | None:
        """Enqueue a copy of a device tensor on the current stream of its device.

        Returns the pinned host tensor, or `None` when the platform has no
        pinned memory. `leaf` must stay alive until the stream has come this far.
        """
        if not _is_plain(leaf):
            return start_copy(leaf, self._platform)
        target = self._take(leaf.shape, leaf.dtype)
        if target is not None:
            target.copy_(leaf, non_blocking=True)
        return target

    def give_back(self, buffers: Iterable[torch.Tensor]) -> None:
        """Take buffers for later copies: written by the device, and read by nobody any more."""
        with self._lock:
            for buffer in buffers:
                if self._held_bytes < _MAX_HELD_BYTES and buffer.is_contiguous():
                    self._held_bytes += buffer.nbytes
                    self._free.setdefault((buffer.shape, buffer.dtype), []).append(buffer)

    def clear(self) -> None:
        """Let go of all buffers that wait for a copy."""
        with self._lock:
            self._free.clear()
            self._held_bytes = 0

    def _take(self, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor | None:
        with self._lock:
            free = self._free.get((shape, dtype))
            if free:
                buffer = free.pop()
                self._held_bytes -= buffer.nbytes
                return buffer
        return self._platform.pinned_empty(shape, dtype)


def _is_plain(leaf: torch.Tensor) -> bool:
    """Whether one transfer of `leaf` as it is gives the bytes of its values."""
    return (
        type(leaf) is torch.Tensor
        and leaf.is_contiguous()
        and not leaf.requires_grad
        and not leaf.is_conj()
        and not leaf.is_neg()
        and leaf.numel() > 0
    )
