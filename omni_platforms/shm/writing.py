"""How the bytes of one leaf get to their place: by the device, through staging, or blocking.

- A device tensor and registered memory: the device writes the place itself.
- A device tensor and pinned memory: the device writes a staging buffer, and the
  host copies it once, to pages that are there already.
- Anything else: a blocking copy.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from typing import Any

import torch

from omni_platforms.outputs.host_copy import copies_asynchronously, resolved
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm.packet import LeafRecord
from omni_platforms.shm.place import Place

logger = logging.getLogger(__name__)


class Writer:
    """Copies the leaves of one output. Temporaries live as long as it does."""

    def __init__(self, platform: OmniPlatform, device: torch.device, asynchronous: bool) -> None:
        self._platform = platform
        self._device = device
        self._asynchronous = asynchronous
        self._alive: list[Any] = []
        self._staged: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def is_staged(self) -> bool:
        """Whether the host has something to copy when the device has finished."""
        return bool(self._staged)

    def write(self, leaf: Any, record: LeafRecord, place: Place) -> None:
        """Copy `leaf` to its place, or enqueue that on the current stream."""
        if not isinstance(leaf, torch.Tensor):
            _write_array(leaf, record, place.parts())
            return
        self._alive.append(leaf)  # before anything is enqueued that reads it
        aside = self._asynchronous and copies_asynchronously(leaf, self._device)
        if aside and place.is_registered and _is_plain(leaf):
            whole = place.like(leaf)
            if whole is not None:
                whole.copy_(leaf, non_blocking=True)
                return
        values = _flat(leaf, record.strides)
        parts = [part.view(values.dtype) for part in place.parts()]
        if not aside:
            _copy(values, parts, non_blocking=False)
            return
        self._alive.append(values)
        if place.is_registered:
            _copy(values, parts, non_blocking=True)
        elif not self._stage(values, parts):
            _copy(values, parts, non_blocking=False)

    def finish(self) -> None:
        """Copy what was staged; the device has finished. The device tensors are let go."""
        for staging, part in self._staged:
            _copy_on_host(staging, part)
        self._staged.clear()
        self._alive.clear()

    def _stage(self, values: torch.Tensor, parts: Sequence[torch.Tensor]) -> bool:
        """Enqueue copies to pinned memory, if there is any."""
        try:
            staging = self._platform.pinned_empty((values.numel(),), values.dtype)
        except RuntimeError as error:
            logger.warning("no pinned memory, copying with a blocking call: %s", str(error))
            return False
        if staging is None or not staging.is_pinned():
            return False
        staging.copy_(values, non_blocking=True)
        start = 0
        for part in parts:
            self._staged.append((staging[start : start + part.numel()], part))
            start += part.numel()
        return True


def _is_plain(leaf: torch.Tensor) -> bool:
    """Whether its bytes, as they lie there, are what is to be copied, and nothing follows it."""
    lazy = leaf.is_conj() or leaf.is_neg() or leaf.requires_grad
    return type(leaf) is torch.Tensor and not lazy and leaf.is_contiguous()


def _flat(leaf: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Return the values as one dense run in the order of memory, copied only where they are not.

    A lazy conjugation or negation is carried out where the tensor is.
    """
    plain = type(leaf) is torch.Tensor
    values = resolved(leaf.detach() if plain else leaf.detach().as_subclass(torch.Tensor))
    if values.stride() != strides:
        dense = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device)
        values = dense.copy_(values)
    if values.is_contiguous():
        return values.reshape(-1)
    return values.as_strided((values.numel(),), (1,))


def _copy(values: torch.Tensor, parts: Sequence[torch.Tensor], *, non_blocking: bool) -> None:
    start, host = 0, values.device.type == "cpu"
    for part in parts:
        piece = values[start : start + part.numel()] if len(parts) > 1 else values
        if host:
            _copy_on_host(piece, part)
        else:
            part.copy_(piece, non_blocking=non_blocking)
        start += part.numel()


def _copy_on_host(values: torch.Tensor, part: torch.Tensor) -> None:
    """Copy one dense run on this thread alone, without the GIL.

    torch would split it over its threads, which the next forward wants, and on
    busy cores waits for the last of them: three times as long for 12 MB.
    """
    ctypes.memmove(part.data_ptr(), values.data_ptr(), part.nbytes)


def _write_array(array: Any, record: LeafRecord, place: Sequence[torch.Tensor]) -> None:
    import numpy

    strides = tuple(stride * record.itemsize for stride in record.strides)
    # The parts follow each other in memory: only the device must not cross from one to the next.
    buffer = place[0].as_strided((record.nbytes,), (1,)).numpy()
    numpy.ndarray(array.shape, array.dtype, buffer, strides=strides)[...] = array
