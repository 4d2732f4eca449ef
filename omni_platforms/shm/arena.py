"""`Arena`: the worker's shared memory, which its device writes and another process reads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch

from omni_platforms.errors import ArenaClosedError, ArenaForkedError
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.platform.interface import DeviceLike, OmniPlatform
from omni_platforms.shm.blocks import Blocks
from omni_platforms.shm.closing import close_at_exit, keep_for_ever
from omni_platforms.shm.issue import Events, Issuer
from omni_platforms.shm.layout import lay_out, record_of
from omni_platforms.shm.packet import INLINE, LeafRecord, Packet
from omni_platforms.shm.packing import HeldBlock, Packing
from omni_platforms.shm.passing import Channel
from omni_platforms.shm.place import Place
from omni_platforms.shm.stats import ArenaStats
from omni_platforms.shm.structure import take_apart

SEGMENT_BYTES = 256 << 20
_NO_BYTES = torch.empty(0, dtype=torch.uint8, device="cpu")


class Arena:
    """Shared memory for the outputs of one device and one consumer process.

    Parameters:
        platform: the platform to use; the process's `current_platform()` when `None`.
        device: the device whose outputs it takes; the calling thread's current one when `None`.
        cap: bytes that all segments may take; a quarter of what the host and the control
            group have left when `None`.
        segment_bytes: how much it grows by at a time; an output's larger leaf gets a larger one.
        initial_bytes: what is allocated and registered at once; one segment when `None`.

    Where the cap, or the system, leaves no room for a leaf, segments of which nothing is in
    use are given back first: that costs about as much as growing does, so
    choose `segment_bytes` by the largest leaf. `trim` gives all such segments back.

    Making one blocks for about 0.4 ms a megabyte, so make it before the first
    request, and large enough: what it has to grow by under a request takes the
    same time there. Any thread may call the methods. `connect` it to the consumer's
    `ArenaView`. An arena that is not closed is closed at interpreter exit.

    Raises `SegmentRefusedError` when the memory cannot be had, `ValueError` for sizes
    that are not positive, and whatever `current_platform()` raises.
    """

    def __init__(
        self,
        platform: OmniPlatform | None = None,
        device: DeviceLike = None,
        *,
        cap: int | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        initial_bytes: int | None = None,
    ) -> None:
        self._closed = False
        self._released = True  # until there is something to release
        self._process = os.getpid()
        self._platform = _chosen(platform)
        self._device = self._platform.resolve_device(device)
        self._packings: weakref.WeakSet[Packing] = weakref.WeakSet()
        self._closing = threading.Lock()
        self._issuer = Issuer(self._platform, self._device)
        self._blocks = Blocks(self._platform, self._device, cap, segment_bytes)
        try:
            self._blocks.reserve(segment_bytes if initial_bytes is None else initial_bytes)
        except BaseException:
            self._blocks.release()
            raise
        self._released = False
        close_at_exit(self)

    @property
    def platform(self) -> OmniPlatform:
        """The platform in use."""
        return self._platform

    @property
    def device(self) -> torch.device:
        """The device whose outputs it takes."""
        return self._device

    # Outputs ------------------------------------------------------------------

    def start(self, nest: Any, after: Events | None = None, name: str = "") -> Packing:
        """Start to copy an output into the arena, without waiting for its device.

        `nest` is anything that pickle accepts; tensors and arrays anywhere in it
        are leaves. What the caller does to containers afterwards changes nothing;
        device tensors must not be written before the packing is done. Leaves on
        the host are copied before this returns, as are device tensors of other devices
        and on platforms without streams, events or pinned memory. The copies come
        after the work of the calling thread's current stream, or, when `after` is
        given, after these events. `name` is for `discard_all_of`.

        Raises `UnsupportedOutputError` for what cannot be sent, `ArenaFullError`
        when there is no room, `CaptureError`, `ArenaClosedError`, `ArenaForkedError`, and what
        the device raises. After an exception no block is held any more, but for
        what the device is still writing, and the nest is as it was.
        """
        self._check_usable()
        self._issuer.check_no_capture()
        structure, leaves, plain = take_apart(nest)
        records = [record_of(leaf) for leaf in leaves]
        sizes, inline_bytes = lay_out(records)
        inline = bytearray(inline_bytes)
        with self._blocks.gate:
            blocks = self._blocks.take(sizes, name)
            packing = Packing(self._blocks, structure, records, blocks, inline, plain)
            self._packings.add(packing)
            try:
                places = self._places(packing.blocks, records, inline)
                self._issuer.issue(packing, leaves, records, places, after)
            except BaseException:
                packing.drop()
                raise
        return packing

    def pack(self, nest: Any, timeout: float | None = None) -> Packet:
        """Copy an output into the arena and return its packet. Blocks until the device is done.

        As `start` and `Packing.wait`; an output that is not done after `timeout`
        seconds is dropped, and `OutputTimeoutError` raised.
        """
        packing = self.start(nest)
        try:
            return packing.wait(timeout)
        finally:
            packing.drop()

    def discard(self, packet: Packet) -> None:
        """Take back the blocks of a packet that no consumer has unpacked, nor will.

        For packets that were not sent, or whose receiver could not read them.
        """
        self._check_usable()
        self._blocks.take_back(packet.numbers)

    def discard_all_of(self, name: str) -> None:
        """Take back the blocks of all packets that were started under `name`, as `discard` does.

        For a packet that was damaged on its way: its receiver knows whose it was and no more.
        """
        self._check_usable()
        self._blocks.take_back_all_of(name)

    # The consumer -------------------------------------------------------------

    def connect(self, channel: Channel) -> None:
        """Give the consumer at the other end of `channel` access to the arena.

        `channel` is a Unix socket (or an end of `multiprocessing.Pipe()`) that
        nothing else uses; `ArenaView.connect` stands at its other end. The arena
        keeps a copy of its descriptor, and sends segments that are added later.
        One consumer for each arena: raises `ValueError` for a second one, and
        `OSError` when the consumer is gone.
        """
        self._check_usable()
        self._blocks.connect(channel)

    @property
    def consumer_gone(self) -> bool:
        """Whether the consumer's process has ended. Its blocks are free again."""
        return self.stats().consumer_gone

    def fileno(self) -> int:
        """Return a descriptor that is readable when leases have ended, for `select` and others."""
        return self._blocks.returns.fileno()

    def wait_for_returns(self, timeout: float | None = None) -> bool:
        """Block until a lease has ended or the consumer has, at most `timeout` seconds.

        Returns whether one has: then `start` may find room where it was full.
        """
        self._check_usable()
        return self._blocks.returns.wait(timeout)

    # Memory -------------------------------------------------------------------

    def reserve(self, nbytes: int) -> None:
        """Grow until there are at least `nbytes` of segments. Blocks for 0.4 ms a megabyte.

        Raises `ArenaFullError` beyond the cap, `SegmentRefusedError` when the system refuses.
        """
        self._check_usable()
        self._blocks.reserve(nbytes)

    def trim(self) -> int:
        """Give every segment back in which no block is in use; return their bytes.

        They are unregistered, and their pages are the system's again when this returns,
        whatever the consumer does; it unmaps them at its next `unpack`, `discard` or `refresh`.
        The next output grows the arena anew: call `reserve` before it. Blocks for about
        0.1 ms a megabyte, and while others capture a graph.

        Raises `HostRegistrationError` when the device refuses to unregister a segment, which
        is kept then, `CaptureError`, `ArenaClosedError` and `ArenaForkedError`.
        """
        self._check_usable()
        self._issuer.check_no_capture()
        return self._blocks.give_back_free()

    def capture_guard(self) -> AbstractContextManager[None]:
        """Return a context in which the arena makes no device call, for a graph capture.

        As `AsyncOutputExecutor.capture_guard`: entering blocks until the calls under
        way have ended; other threads' calls wait, and on this thread they raise `CaptureError`.
        """
        return self._blocks.gate.hold()

    @property
    def capture_gate(self) -> CaptureGate:
        """What device calls on this arena's behalf pass, and `capture_guard` holds."""
        return self._blocks.gate

    @property
    def side_stream(self) -> torch.Stream | None:
        """The stream of the copies; `None` where they are blocking."""
        return self._issuer.side_stream

    def stats(self) -> ArenaStats:
        """Return sizes and counts of this moment. Does not wait for the device."""
        return self._blocks.stats()

    def close(self, timeout: float = 10.0) -> None:
        """Unregister and release the memory, when the device has finished writing it.

        Outputs without a packet are dropped. The consumer's results stay valid: they
        have the memory mapped themselves. Blocks at most `timeout` seconds; raises
        `DrainTimeoutError` when the device is still writing: then nothing was
        released, and `close` may be called again. A forked child closes nothing.
        """
        if os.getpid() != self._process:
            return
        with self._closing:
            self._closed = True
            for packing in list(self._packings):
                packing.drop()
            self._blocks.await_device(timeout)
            self._blocks.release()
            self._released = True

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._released and os.getpid() == self._process:
            keep_for_ever(self._blocks, unless=self.close)

    def _places(
        self, blocks: Sequence[HeldBlock], records: Sequence[LeafRecord], inline: bytearray
    ) -> list[Place]:
        """Return where the bytes of each leaf go."""
        packet = torch.frombuffer(inline, dtype=torch.uint8) if inline else _NO_BYTES
        places: list[Place] = []
        for record in records:
            if record.block == INLINE:
                places.append(Place(packet, record.offset, record.nbytes))
            else:
                block = blocks[record.block]
                places.append(self._blocks.place(block, record.offset, record.nbytes))
        return places

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise ArenaForkedError(
                "this arena belongs to the parent of this forked process: make one here, or start "
                'processes with the "spawn" method'
            )
        if self._closed:
            raise ArenaClosedError("this arena is closed: make a new one")


def _chosen(platform: OmniPlatform | None) -> OmniPlatform:
    if platform is not None:
        return platform
    from omni_platforms.platform.selection import current_platform

    return current_platform()
