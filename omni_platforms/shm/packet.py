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

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_platforms.errors import CorruptPacketError

MAGIC, VERSION = b"OmSh", 1
INLINE = -1
"""The block number of a leaf whose bytes are in the packet itself."""

_START = struct.Struct("<4sII")
_COUNTS = struct.Struct("<IIQQ")
_BLOCK = struct.Struct("<QQQQ")
_LEAF = struct.Struct("<cBBiQQ")


@dataclass(frozen=True)
class BlockRecord:
    """One leased block: `nbytes` that are in use, from `offset` of a segment."""

    number: int
    segment: int
    offset: int
    nbytes: int


@dataclass
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


@dataclass(frozen=True)
class Contents:
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
    blocks = [_BLOCK.pack(b.number, b.segment, b.offset, b.nbytes) for b in contents.blocks]
    leaves = [_encode_leaf(leaf) for leaf in contents.leaves]
    counts = _COUNTS.pack(
        len(blocks), len(leaves), len(contents.structure), memoryview(contents.inline).nbytes
    )
    checked = b"".join([counts, *blocks, *leaves, contents.structure])
    return b"".join([_START.pack(MAGIC, VERSION, zlib.crc32(checked)), checked, contents.inline])


def decode(data: Any) -> Contents:
    """Read a packet. Raises `CorruptPacketError` for anything but what `encode` returned."""
    reader = _Reader(memoryview(data).cast("B"))
    magic, version, checksum = reader.unpack(_START)
    if magic != MAGIC:
        raise CorruptPacketError(f"this is not a packet: it begins with {magic!r}")
    if version != VERSION:
        raise CorruptPacketError(
            f"the packet has version {version}, and this process reads version {VERSION}: "
            "run the same release of omni-platforms on both sides"
        )
    blocks, leaves, structure_bytes, inline_bytes = _COUNTS.unpack_from(reader.peek(_COUNTS.size))
    if inline_bytes > len(reader.rest) or zlib.crc32(reader.rest_before(inline_bytes)) != checksum:
        raise CorruptPacketError("the packet is damaged or truncated: its checksum is wrong")
    reader.take(_COUNTS.size)
    contents = Contents(
        [BlockRecord(*reader.unpack(_BLOCK)) for _ in range(blocks)],
        [_decode_leaf(reader) for _ in range(leaves)],
        bytes(reader.take(structure_bytes)),
        reader.take(inline_bytes),
    )
    if reader.rest:
        raise CorruptPacketError(f"{len(reader.rest)} bytes too many are in the packet")
    for leaf in contents.leaves:
        _check_leaf(leaf, contents)
    return contents


def _encode_leaf(leaf: LeafRecord) -> bytes:
    name, dims = leaf.dtype.encode(), len(leaf.shape)
    head = _LEAF.pack(leaf.kind, len(name), dims, leaf.block, leaf.offset, leaf.nbytes)
    numbers = struct.pack(f"<I{2 * dims}q", leaf.itemsize, *leaf.shape, *leaf.strides)
    return head + name + numbers


def _decode_leaf(reader: _Reader) -> LeafRecord:
    kind, name_bytes, dims, block, offset, nbytes = reader.unpack(_LEAF)
    try:
        name = str(reader.take(name_bytes), "ascii")
    except UnicodeDecodeError as error:
        raise CorruptPacketError("the name of a dtype is not text") from error
    form = f"<I{2 * dims}q"
    itemsize, *numbers = struct.unpack(form, reader.take(struct.calcsize(form)))
    shape, strides = tuple(numbers[:dims]), tuple(numbers[dims:])
    return LeafRecord(kind, name, itemsize, shape, strides, nbytes, block, offset)


def _check_leaf(leaf: LeafRecord, contents: Contents) -> None:
    """Check that a leaf stays inside its bytes, and these inside their block."""
    elements = 1
    for size in leaf.shape:
        elements *= size
    if leaf.kind not in (TENSOR, ARRAY) or min((*leaf.shape, *leaf.strides), default=0) < 0:
        raise CorruptPacketError(f"a leaf of the packet makes no sense: {leaf}")
    last = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.strides, strict=True))
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


class _Reader:
    """Takes a buffer apart from its start."""

    def __init__(self, rest: memoryview) -> None:
        self.rest = rest

    def peek(self, nbytes: int) -> memoryview:
        if nbytes > len(self.rest):
            raise CorruptPacketError(
                f"the packet is truncated: {nbytes} bytes were expected where "
                f"{len(self.rest)} are left"
            )
        return self.rest[:nbytes]

    def take(self, nbytes: int) -> memoryview:
        taken = self.peek(nbytes)
        self.rest = self.rest[nbytes:]
        return taken

    def rest_before(self, nbytes: int) -> memoryview:
        return self.rest[: len(self.rest) - nbytes]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))
