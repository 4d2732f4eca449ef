"""One output on its way into the arena."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from omni_platforms.errors import OutputError, OutputTimeoutError
from omni_platforms.shm.allocator import Block
from omni_platforms.shm.packet import INLINE, BlockRecord, LeafRecord, Packet, encode_head
from omni_platforms.shm.writing import Writer

if TYPE_CHECKING:
    from omni_platforms.shm.blocks import Blocks


class HeldBlock(NamedTuple):
    """A block that belongs to one output, and the number that its lease has or will have."""

    number: int
    block: Block
    nbytes: int
    name: str = ""
    """Whose it is, for those that know no number."""


class Retired(NamedTuple):
    """Blocks that nobody wants any more, and what the device may still do to them."""

    blocks: Sequence[HeldBlock]
    done: torch.Event | None
    alive: Any
    """What the device reads or writes besides."""

    def is_written(self) -> bool:
        """Whether the device has finished. Does not block."""
        return self.done is None or self.done.query()


class Packing:
    """An output whose copies are enqueued. `Arena.start` makes it; `wait` makes the packet.

    Its device tensors stay alive until the device has read them. Letting go of
    it without `wait` or `drop` gives the blocks back as `drop` does.
    """

    def __init__(
        self,
        owner: Blocks,
        structure: bytes,
        records: Sequence[LeafRecord],
        blocks: Sequence[HeldBlock],
        inline: bytearray,
        plain: bool,
    ) -> None:
        self._owner = owner
        self._structure = structure
        self._records = records
        self.blocks: Sequence[HeldBlock] = blocks
        """What it holds, until it is settled or announced."""
        self._announced: Sequence[HeldBlock] = ()
        self._inline = inline
        self._plain = plain
        self._lock = threading.Lock()
        self._head = b""
        self._packet: Packet | None = None
        self.done: torch.Event | None = None
        """The device has written everything once this is complete; `None`: it has already."""
        self.writer: Writer | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return sum(record.nbytes for record in self._records)

    def wait(self, timeout: float | None = None) -> Packet:
        """Block until the device has written the output, and return its packet.

        Waits at most `timeout` seconds (for ever when `None`). A second call returns the same
        packet. Raises `OutputTimeoutError` when the output is still in flight, which it
        stays, and `OutputError` when it was dropped.
        """
        self._encode()  # while the device is still copying
        if not self._await_device(timeout):
            raise OutputTimeoutError(
                f"an output of {self.nbytes} bytes was not in shared memory after {timeout} s: "
                "the device has not finished it. Wait longer, or drop it."
            )
        with self._lock:
            if self.writer is not None or self._packet is None:
                self._packet = self._finish()
            return self._packet

    def announce(self) -> Packet | None:
        """Return the packet before the device has written the output. Does not block.

        Its consumer may unpack it at once, and keep the result from everybody until
        `wait` has returned here: so what unpacking costs is over when the bytes come.
        It is `wait`'s packet then, and `drop` does nothing any more; blocks that the
        consumer gives back earlier are free when the device has finished. `None` when the
        host has still to copy some of the bytes then (small leaves, staging), when it has objects
        whose own way of being made may read them, or when it was dropped.
        """
        self._encode()
        with self._lock:
            if self._packet is None and self.writer is not None and not self._comes_late():
                self._packet = Packet(self._head + self._inline, self._numbers())
                if self.done is None:
                    self._owner.lend(self.blocks)
                else:
                    self._owner.announce(Retired(self.blocks, self.done, self.writer))
                self._announced, self.blocks = self.blocks, ()
            return self._packet

    def drop(self) -> None:
        """Give the blocks back, as soon as the device has finished writing them. Does not block.

        Any thread may call it, more than once. After `wait` it does nothing:
        what has a packet is given back by its consumer, or by `Arena.discard`.
        """
        with self._lock:
            self._retire()

    def _await_device(self, timeout: float | None) -> bool:
        done = self.done
        if done is None:
            return True
        with self._owner.gate:
            return self._owner.platform.synchronize_event(done, timeout)

    def _encode(self) -> None:
        """Prepare the packet, but for the inline bytes, which the device may still be writing."""
        with self._lock:
            if not self._head and self.writer is not None:
                blocks = [
                    BlockRecord(held.number, held.block.segment, held.block.offset, held.nbytes)
                    for held in self.blocks
                ]
                self._head = encode_head(blocks, self._records, self._structure, len(self._inline))

    def _finish(self) -> Packet:
        if self.writer is None:
            raise OutputError("this output was dropped: there is no packet of it")
        self.writer.finish()
        packet = self._packet
        if packet is None:
            packet = Packet(self._head + self._inline, self._numbers())
            self._owner.lend(self.blocks)
        else:
            self._owner.written(self._announced)
        self.blocks, self._announced, self.writer, self.done = (), (), None, None
        return packet

    def _numbers(self) -> tuple[int, ...]:
        return tuple(held.number for held in self.blocks)

    def _comes_late(self) -> bool:
        """Whether the host has something to do, or may read leaves, when it is unpacked."""
        if self.done is None:
            return False
        if not self._plain:
            return True
        inline = any(record.block == INLINE and record.nbytes for record in self._records)
        return inline or (self.writer is not None and self.writer.is_staged)

    def _retire(self) -> None:
        """Hand the blocks to the arena. Takes no lock: it runs in the garbage collector too."""
        if self._packet is not None:
            return  # what was announced is its consumer's to give back
        writer, self.writer = self.writer, None
        blocks, self.blocks = self.blocks, ()
        if blocks or writer is not None:
            self._owner.abandoned.append(Retired(blocks, self.done, (writer, self._inline)))

    def __del__(self) -> None:
        self._retire()
