"""Copies of small outputs: on the caller's own stream, into pinned buffers that serve again.

A few kilobytes keep the device busy for about two microseconds, while making a
side stream wait for them costs the host more than the copy itself. The buffers
are kept by shape and type, because the outputs of a loop are alike.
"""

from __future__ import annotations

from typing import Any

import torch

from omni_platforms.outputs.host_copy import start_copy
from omni_platforms.platform.interface import OmniPlatform

SMALL_BYTES = 64 << 10
"""Outputs of up to this many bytes are copied on the caller's stream."""

_SHELF_BYTES = 256 << 10
_SHELVES = 32

Shelf = list[torch.Tensor]
"""Pinned buffers of one shape and type; its appends and pops are atomic."""


class SmallCopies:
    """Starts small copies, and keeps the pinned buffers between them. Any thread may call it.

    At most 32 kinds of buffers are kept, of each about 256 KiB.
    """

    def __init__(self, platform: OmniPlatform, device: torch.device) -> None:
        self._platform = platform
        self._device = device
        self._shelves: dict[tuple[torch.Size, torch.dtype], Shelf] = {}

    def start(self, leaf: Any) -> torch.Tensor | None:
        """Enqueue a copy of a device tensor on the current stream of its device.

        As `start_copy`: `None` where the host must wait, and `leaf` must stay
        alive until the stream has come this far.
        """
        if not is_plain(leaf, self._device):
            return start_copy(leaf, self._device, self._platform)
        shape, dtype = leaf.shape, leaf.dtype
        shelf = self._shelves.get((shape, dtype))
        try:
            target = shelf.pop() if shelf else self._platform.pinned_empty(shape, dtype)
        except IndexError:  # another thread took the last one
            target = self._platform.pinned_empty(shape, dtype)
        if target is not None:
            target.copy_(leaf, non_blocking=True)
        return target

    def take(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return a private copy of what the device wrote; the buffer serves again."""
        value = buffer.clone()
        if buffer.is_contiguous():
            self.shelve(buffer)
        return value

    def shelve(self, buffer: torch.Tensor) -> None:
        """Keep a contiguous buffer that nobody reads any more for a later copy."""
        shelf = self._shelves.get((buffer.shape, buffer.dtype))
        if shelf is None:
            if len(self._shelves) >= _SHELVES:
                return
            shelf = self._shelves.setdefault((buffer.shape, buffer.dtype), [])
        if len(shelf) * buffer.nbytes < _SHELF_BYTES:
            shelf.append(buffer)

    def clear(self) -> None:
        """Let go of all buffers that wait for a copy."""
        self._shelves.clear()


def is_plain(leaf: Any, device: torch.device) -> bool:
    """Whether `leaf` is on `device`, and one transfer as it is gives the bytes of its values."""
    return (
        type(leaf) is torch.Tensor
        and leaf.device == device
        and leaf.layout is torch.strided
        and leaf.is_contiguous()
        and not leaf.requires_grad
        and not leaf.is_neg()
        and not leaf.is_conj()
        and not leaf.is_quantized
        and not leaf.is_nested
        and leaf.numel() > 0
    )
