"""`ArenaView`: the consumer's side of an arena. Its results are views of the worker's pages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch

from omni_platforms.errors import (
    ArenaClosedError,
    ArenaForkedError,
    CorruptPacketError,
    SharedMemoryError,
)
from omni_platforms.outputs.host_copy import own_tensors
from omni_platforms.shm.allocator import ALIGNMENT
from omni_platforms.shm.lease import lease, sweep
from omni_platforms.shm.mapped import MappedSegments
from omni_platforms.shm.packet import (
    ARRAY,
    INLINE,
    BlockRecord,
    Contents,
    LeafRecord,
    Packet,
    decode,
)
from omni_platforms.shm.passing import Channel
from omni_platforms.shm.returns import as_record
from omni_platforms.shm.structure import put_together

_RECEIVE_TIMEOUT_S = 10.0
_REMEMBERED = 4096


class ArenaView:
    """The consumer's side of one arena: unpacks its packets without copying large leaves.

    Make it with `connect` or `attach`. Any thread may call the methods. It touches no
    device. Results are ordinary tensors and arrays, writable and
    private; each large one leases its block until it and everything that views
    its memory are gone. Pickling, saving or copying one costs its own bytes.

    `Tensor.share_memory_()`, and sending a result through `torch.multiprocessing`,
    move a tensor's bytes elsewhere: arrays that were derived from it before then
    view memory that is not theirs any more, as with every tensor of torch.
    """

    def __init__(self, segments: MappedSegments) -> None:
        self._process = os.getpid()
        self._segments = segments
        self._seen: dict[int, object] = {}  # the last leases that began here, oldest first

    @classmethod
    def connect(cls, channel: Channel, timeout: float = _RECEIVE_TIMEOUT_S) -> ArenaView:
        """Return the view of the arena that is connected to the other end of `channel`.

        Blocks until the arena's first message has come. The view keeps a copy of
        the channel's descriptor: segments that the arena adds or gives back later are told
        of over it. Raises `CorruptPacketError` when nothing comes within `timeout` seconds,
        and `SegmentRefusedError` when a segment cannot be mapped.
        """
        return cls(MappedSegments(channel, timeout))

    def refresh(self) -> None:
        """Unmap the segments that the arena has given back. Does not block.

        `unpack` and `discard` do so as well: this is for a consumer that expects no packet.
        """
        self._check_usable()
        self._segments.take_in()

    def unpack(self, packet: Packet | bytes | bytearray | memoryview) -> Any:
        """Return the nest of a packet, which can be unpacked once. Does not block.

        Raises `CorruptPacketError` for a packet that is damaged, not of this arena or
        was unpacked before (as far as the last 4096 leases tell), and
        `UnsupportedOutputError` for objects that cannot be made here. No lease is kept
        then. An error whose `untouched` is true came before any lease began: the worker has
        the blocks still, and may take them back (`Arena.discard`, `Arena.discard_all_of`).
        """
        contents = self._read(packet)
        leases: list[Any] = []
        values: list[Any] = []
        try:
            with own_tensors():
                leases += self._lease_all(contents.blocks)
                values += [_value(leaf, contents, leases) for leaf in contents.leaves]
                return put_together(contents.structure, values)
        finally:
            # A traceback would otherwise keep them, and so the blocks.
            leases.clear()
            values.clear()

    def discard(self, packet: Packet | bytes | bytearray | memoryview) -> None:
        """Give the blocks of a packet back without unpacking it. Raises `CorruptPacketError`."""
        self._lease_all(self._read(packet).blocks)

    def close(self) -> None:
        """Let go of the arena. Results that are still there stay valid, with their leases."""
        self._segments.close()

    def __enter__(self) -> ArenaView:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, packet: Any) -> Contents:
        self._check_usable()
        sweep()
        self._segments.take_in()
        try:
            contents = decode(packet.data if isinstance(packet, Packet) else packet)
            for block in contents.blocks:
                self._check_block(block)
        except SharedMemoryError as error:
            error.untouched = True
            raise
        return contents

    def _check_block(self, block: BlockRecord) -> None:
        size = self._segments.get(block.segment).size
        if block.offset % ALIGNMENT or not 0 < block.nbytes <= size - block.offset:
            raise CorruptPacketError(f"{block} lies outside its segment of {size} bytes")

    def _lease_all(self, blocks: Sequence[BlockRecord]) -> list[Any]:
        """Lease all blocks, or, after an exception, give all of them back."""
        end = self._segments.end
        assert end is not None
        self._check_unseen(blocks)
        leases: list[Any] = []
        try:
            for block in blocks:
                mapping = self._segments.get(block.segment).mapping
                leases.append(lease(mapping, block.offset, block.nbytes, block.number, end))
        except BaseException:
            for block in blocks[len(leases) :]:
                os.write(end.descriptor, as_record(block.number))
            leases.clear()
            raise
        return leases

    def _check_unseen(self, blocks: Sequence[BlockRecord]) -> None:
        """Refuse a packet that was unpacked before: its blocks may be somebody else's now."""
        this = object()
        for block in blocks:
            if self._seen.setdefault(block.number, this) is not this:
                raise CorruptPacketError(
                    f"lease {block.number} began before: a packet can be unpacked or discarded once"
                )
        while len(self._seen) > _REMEMBERED:
            self._seen.pop(next(iter(self._seen)), None)

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise ArenaForkedError(
                "this view of an arena belongs to the parent of this forked process: unpack there, "
                'or start processes with the "spawn" method'
            )
        if self._segments.end is None:
            raise ArenaClosedError("this view of an arena is closed")


def _value(leaf: LeafRecord, contents: Contents, leases: Sequence[Any]) -> Any:
    """Return one leaf, over its own range of its block, or a private copy of inline bytes."""
    end = leaf.offset + leaf.nbytes
    if leaf.block == INLINE:
        memory = memoryview(bytearray(contents.inline[leaf.offset : end]))
    else:
        memory = memoryview(leases[leaf.block])[leaf.offset : end]
    return _array(leaf, memory) if leaf.kind == ARRAY else _tensor(leaf, memory)


def _tensor(leaf: LeafRecord, memory: memoryview) -> torch.Tensor:
    dtype = getattr(torch, leaf.dtype, None)
    if not isinstance(dtype, torch.dtype) or dtype.itemsize != leaf.itemsize:
        raise CorruptPacketError(f"this torch has no dtype {leaf.dtype} of {leaf.itemsize} bytes")
    if not leaf.nbytes:
        return torch.empty_strided(leaf.shape, leaf.strides, dtype=dtype, device="cpu")
    return torch.frombuffer(memory, dtype=dtype).as_strided(leaf.shape, leaf.strides)


def _array(leaf: LeafRecord, memory: memoryview) -> Any:
    import numpy

    try:
        dtype = numpy.dtype(leaf.dtype)
    except TypeError as error:
        raise CorruptPacketError(f"this NumPy has no dtype {leaf.dtype}") from error
    if dtype.hasobject or dtype.itemsize != leaf.itemsize:
        raise CorruptPacketError(f"{leaf.dtype} has no {leaf.itemsize} plain bytes")
    strides = tuple(stride * leaf.itemsize for stride in leaf.strides)
    return numpy.ndarray(leaf.shape, dtype, memory, strides=strides)
