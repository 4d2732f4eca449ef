"""A packet: what crosses the border for one output, in a small versioned format.

    magic, version, checksum of all that follows up to the inline bytes
    numbers: blocks, leaves, bytes of the structure, inline bytes
    one record a block:  lease number, segment, offset, bytes
    one record a leaf:   kind, dtype, where its bytes are, shape, strides (in elements)
    the structure:       the nest, pickled, with a number in place of each leaf
    the inline bytes of small leaves

A reader checks everything before it uses anything. The structure is
unpickled, so packets must come from the process that this one trusts.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from omni_platforms.errors import CorruptPacketError

MAGIC, VERSION = b"OmSh", 1
INLINE = -1
"""The block number of a leaf whose bytes are in the packet itself."""

_START = struct.Struct("<4sII")
_COUNTS = struct.Struct("<IIQQ")
_BLOCK = struct.Struct("<QQQQ")
_LEAF = struct.Struct("<cBBiQQ")


class BlockRecord(NamedTuple):
    """One leased block: `nbytes` that are in use, from `offset` of a segment."""

    number: int
    segment: int
    offset: int
    nbytes: int


@dataclass(slots=True)
class LeafRecord:
    """One tensor or array: a dense run of `nbytes`, and how it is looked at."""

    kind: bytes
    """`TENSOR` or `ARRAY`."""
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    block: int = INLINE
    offset: int = 0
    """Where it begins, in its block or among the inline bytes."""


TENSOR, ARRAY = b"t", b"a"


class Contents(NamedTuple):
    """A packet, read and checked."""

    blocks: Sequence[BlockRecord]
    leaves: Sequence[LeafRecord]
    structure: bytes
    inline: Any


@dataclass(frozen=True)
class Packet:
    """One packed output. `data` is what the consumer needs; it may be sent any way."""

    data: bytes
    numbers: tuple[int, ...] = field(default=(), repr=False)
    """The leases that it opened, for the worker's `discard`."""

    def __bytes__(self) -> bytes:
        return self.data


def encode(contents: Contents) -> bytes:
    """Return the bytes of a packet."""
    head = encode_head(
        contents.blocks, contents.leaves, contents.structure, memoryview(contents.inline).nbytes
    )
    return head + bytes(contents.inline)


def encode_head(
    blocks: Sequence[BlockRecord], leaves: Sequence[LeafRecord], structure: bytes, inline_bytes: int
) -> bytes:
    """Return all of a packet but the inline bytes, which follow."""
    checked = b"".join(
        [
            _COUNTS.pack(len(blocks), len(leaves), len(structure), inline_bytes),
            *(_BLOCK.pack(*block) for block in blocks),
            *map(_encode_leaf, leaves),
            structure,
        ]
    )
    return _START.pack(MAGIC, VERSION, zlib.crc32(checked)) + checked


def decode(data: Any) -> Contents:
    """Read a packet. Raises `CorruptPacketError` for anything but what `encode` returned."""
    view = memoryview(data).cast("B")
    try:
        return _decode(view)
    except struct.error as error:
        raise CorruptPacketError(f"the packet of {len(view)} bytes is truncated: {error}") from None


def _decode(view: memoryview) -> Contents:
    blocks, leaves, structure_bytes, inline_bytes = _checked_counts(view)
    at, end = _START.size + _COUNTS.size, len(view) - inline_bytes
    block_records, leaf_records = [], []
    for _ in range(blocks):
        block_records.append(BlockRecord._make(_BLOCK.unpack_from(view, at)))
        at += _BLOCK.size
    for _ in range(leaves):
        leaf, at = _decode_leaf(view, at)
        leaf_records.append(leaf)
    if at + structure_bytes != end:
        raise CorruptPacketError(
            f"the packet has {end - at} bytes where its structure of {structure_bytes} belongs"
        )
    contents = Contents(block_records, leaf_records, bytes(view[at:end]), view[end:])
    for leaf in leaf_records:
        _check_leaf(leaf, contents)
    return contents


def _checked_counts(view: memoryview) -> tuple[int, int, int, int]:
    """Return the numbers of a packet that begins as one and has its checksum."""
    magic, version, checksum = _START.unpack_from(view)
    if magic != MAGIC:
        raise CorruptPacketError(f"this is not a packet: it begins with {magic!r}")
    if version != VERSION:
        raise CorruptPacketError(
            f"the packet has version {version}, and this process reads version {VERSION}: "
            "run the same release of omni-platforms on both sides"
        )
    counts = _COUNTS.unpack_from(view, _START.size)
    end = len(view) - counts[3]
    if end < _START.size or zlib.crc32(view[_START.size : end]) != checksum:
        raise CorruptPacketError("the packet is damaged or truncated: its checksum is wrong")
    return counts


def _encode_leaf(leaf: LeafRecord) -> bytes:
    name, dims = leaf.dtype.encode(), len(leaf.shape)
    head = _LEAF.pack(leaf.kind, len(name), dims, leaf.block, leaf.offset, leaf.nbytes)
    return head + name + _dimensions(dims).pack(leaf.itemsize, *leaf.shape, *leaf.strides)


def _decode_leaf(view: memoryview, at: int) -> tuple[LeafRecord, int]:
    """Return the record that begins at `at`, and where it ends."""
    kind, name_bytes, dims, block, offset, nbytes = _LEAF.unpack_from(view, at)
    at += _LEAF.size
    try:
        name = str(view[at : at + name_bytes], "ascii")
    except UnicodeDecodeError as error:
        raise CorruptPacketError("the name of a dtype is not text") from error
    at += name_bytes
    form = _dimensions(dims)
    itemsize, *numbers = form.unpack_from(view, at)
    shape, strides = tuple(numbers[:dims]), tuple(numbers[dims:])
    leaf = LeafRecord(kind, name, itemsize, shape, strides, nbytes, block, offset)
    return leaf, at + form.size


@functools.cache
def _dimensions(dims: int) -> struct.Struct:
    """Return the form of an item's size, a shape and strides; `dims` is one byte."""
    return struct.Struct(f"<I{2 * dims}q")


def _check_leaf(leaf: LeafRecord, contents: Contents) -> None:
    """Check that a leaf stays inside its bytes, and these inside their block."""
    elements = math.prod(leaf.shape)
    if leaf.kind not in (TENSOR, ARRAY) or min((*leaf.shape, *leaf.strides), default=0) < 0:
        raise CorruptPacketError(f"a leaf of the packet makes no sense: {leaf}")
    last = sum(map(operator.mul, leaf.shape, leaf.strides)) - sum(leaf.strides)
    if leaf.nbytes != elements * leaf.itemsize or (elements and last >= elements):
        raise CorruptPacketError(f"a leaf of the packet does not fit its bytes: {leaf}")
    if leaf.block == INLINE:
        room = len(contents.inline)
    elif 0 <= leaf.block < len(contents.blocks):
        room = contents.blocks[leaf.block].nbytes
    else:
        raise CorruptPacketError(f"a leaf lies in block {leaf.block}, which is not in the packet")
    if leaf.offset + leaf.nbytes > room:
        raise CorruptPacketError(f"a leaf of the packet points past the end of its block: {leaf}")
