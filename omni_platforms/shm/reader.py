"""`BlockReader`: leases the blocks of an arena's packets, and knows nothing of tensors.

It imports no torch, so that a process that only passes blocks on stays small.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar

from omni_platforms.errors import (
    ArenaClosedError,
    ArenaForkedError,
    CorruptPacketError,
    SharedMemoryError,
)
from omni_platforms.shm.allocator import ALIGNMENT
from omni_platforms.shm.lease import lease, sweep
from omni_platforms.shm.mapped import MappedSegments
from omni_platforms.shm.packet import BlockRecord, Contents, Packet, decode
from omni_platforms.shm.passing import Channel
from omni_platforms.shm.returns import as_record

_RECEIVE_TIMEOUT_S = 10.0
_REMEMBERED = 4096

R = TypeVar("R", bound="BlockReader")


class BlockReader:
    """The consumer's side of one arena, for whoever wants the bytes of its blocks.

    Make it with `connect`. Any thread may call the methods.
    """

    def __init__(self, segments: MappedSegments) -> None:
        self._process = os.getpid()
        self._segments = segments
        self._seen: dict[int, object] = {}  # the last leases that began here, oldest first

    @classmethod
    def connect(cls: type[R], channel: Channel, timeout: float = _RECEIVE_TIMEOUT_S) -> R:
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

    def discard(self, packet: Packet | bytes | bytearray | memoryview) -> None:
        """Give the blocks of a packet back without unpacking it. Raises `CorruptPacketError`."""
        self._lease_all(self._read(packet).blocks)

    def lease_blocks(self, blocks: Sequence[BlockRecord]) -> list[Any]:
        """Return an object for each block that exports its memory, and gives it back when it dies.

        All or none: after an exception all are given back. Raises as `discard`.
        """
        self._check_usable()
        sweep()
        self._segments.take_in()
        self._check_blocks(blocks)
        return self._lease_all(blocks)

    def close(self) -> None:
        """Let go of the arena. Results that are still there stay valid, with their leases."""
        self._segments.close()

    def __enter__(self: R) -> R:
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
        except SharedMemoryError as error:
            error.untouched = True
            raise
        self._check_blocks(contents.blocks)
        return contents

    def _check_blocks(self, blocks: Sequence[BlockRecord]) -> None:
        try:
            for block in blocks:
                self._check_block(block)
        except SharedMemoryError as error:
            error.untouched = True
            raise

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
