"""Where the bytes of each leaf go: into a block of its own, a shared one, or the packet.

Each large leaf has its own block, and so its own lease: a thumbnail that is
kept does not keep the video. Small leaves travel in the packet, up to a sum;
what is beyond it shares one block, as leases are not unlimited either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from omni_platforms.shm.allocator import round_up
from omni_platforms.shm.packet import ARRAY, TENSOR, LeafRecord

INLINE_BYTES = 16 << 10
"""Leaves of up to this many bytes are small."""
INLINE_SUM_BYTES = 256 << 10
"""How many bytes of small leaves one packet carries itself."""
_LEAF_ALIGNMENT = 64


def record_of(leaf: Any) -> LeafRecord:
    """Describe a tensor or array. Dense ones keep their strides, others get those of a copy."""
    if isinstance(leaf, torch.Tensor):
        strides = leaf.stride() if leaf.is_contiguous() else _dense_strides(leaf)
        dtype, size = str(leaf.dtype).partition(".")[2], leaf.dtype.itemsize
        nbytes = leaf.numel() * size
        return LeafRecord(TENSOR, dtype, size, tuple(leaf.shape), tuple(strides), nbytes)
    strides = _array_strides(leaf)
    size = leaf.dtype.itemsize
    return LeafRecord(ARRAY, leaf.dtype.str, size, leaf.shape, strides, leaf.size * size)


def lay_out(records: Sequence[LeafRecord]) -> tuple[list[int], int]:
    """Give every record its place; return the bytes of each block, and of the inline part."""
    sizes: list[int] = []
    inline = 0
    beyond: list[LeafRecord] = []
    for record in records:
        if record.nbytes > INLINE_BYTES:
            record.block = len(sizes)
            sizes.append(record.nbytes)
        elif inline + record.nbytes <= INLINE_SUM_BYTES:
            record.offset = inline
            inline = round_up(inline + record.nbytes, _LEAF_ALIGNMENT)
        else:
            beyond.append(record)
    if beyond:
        sizes.append(_share(beyond, len(sizes)))
    return sizes, inline


def _share(records: Sequence[LeafRecord], block: int) -> int:
    """Place small leaves one after the other in `block`; return the bytes that they take."""
    end = 0
    for record in records:
        record.block, record.offset = block, end
        end = round_up(end + record.nbytes, _LEAF_ALIGNMENT)
    return end


def _dense_strides(leaf: torch.Tensor) -> tuple[int, ...]:
    """Return the strides that torch gives a copy."""
    plain = leaf.detach().as_subclass(torch.Tensor)
    return torch.empty_like(plain, device="meta").stride()


def _array_strides(array: Any) -> tuple[int, ...]:
    """Return the strides, in elements, of a dense copy of an array: its own order, C otherwise."""
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    strides, step = [], 1
    for size in array.shape if fortran else reversed(array.shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(strides if fortran else reversed(strides))
