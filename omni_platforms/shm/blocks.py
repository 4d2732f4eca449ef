"""The blocks of an arena: who has which, and when it may be used again.

A block is free, or held by an output on its way (`Packing`), or lent to the
consumer, or retired: nobody wants it, and the device may still be writing it. One that is
announced is lent before the device has finished.
Every method may be called from any thread; none waits for the device but
`await_device`.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence

import torch

from omni_platforms.errors import ArenaFullError, DrainTimeoutError, SegmentRefusedError
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm.growth import Segments
from omni_platforms.shm.packing import HeldBlock, Retired
from omni_platforms.shm.passing import Channel
from omni_platforms.shm.place import Place
from omni_platforms.shm.returns import ReturnPipe
from omni_platforms.shm.segment import typed_refusal
from omni_platforms.shm.stats import ArenaStats

logger = logging.getLogger(__name__)


class Blocks:
    """All blocks of one arena, behind one lock."""

    def __init__(
        self, platform: OmniPlatform, device: torch.device, cap: int | None, segment_bytes: int
    ) -> None:
        self.platform = platform
        self._device = device
        self.abandoned: deque[Retired] = deque()
        """Blocks that come back from anywhere, also from the garbage collector: without a lock."""
        self.gate = CaptureGate()
        """Entered around every device call, before the lock: a graph capture keeps them out."""
        self._lock = threading.Lock()
        self._segments = Segments(platform, device, cap, segment_bytes)
        self._allocator = self._segments.allocator
        with typed_refusal("a pipe"):
            self.returns = ReturnPipe()
        self._numbers = itertools.count(1)
        self._in_flight: dict[int, HeldBlock] = {}
        self._lent: dict[int, HeldBlock] = {}
        self._announced: dict[int, Retired] = {}
        """What is lent although the device is still writing it, by the number of the lease."""
        self._retired: list[Retired] = []
        self._peak = 0
        self._grown = 0

    def take(self, sizes: Sequence[int], name: str = "") -> list[HeldBlock]:
        """Return a block of each size, all or none, with a name. Called with the gate entered.

        Raises `ArenaFullError`.
        """
        with self._lock:
            self._collect()
            self._check_leases(len(sizes))
            taken: dict[int, HeldBlock] = {}
            try:
                # The largest first: it is the one that segments may have to be given back for.
                for at in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
                    taken[at] = self._take(sizes[at], name)
            except BaseException:
                self._free(taken.values())
                raise
            self._peak = max(self._peak, self._allocator.used_bytes)
            return [taken[at] for at in range(len(sizes))]

    def place(self, held: HeldBlock, offset: int, nbytes: int) -> Place:
        """Return a range of a block."""
        segment = self._segments.all[held.block.segment]
        return Place(segment, held.block.offset + offset, nbytes)

    def lend(self, blocks: Iterable[HeldBlock]) -> None:
        """Let blocks that are written be the consumer's until it returns their numbers."""
        with self._lock:
            for held in blocks:
                self._lent[held.number] = self._in_flight.pop(held.number)

    def announce(self, written_later: Retired) -> None:
        """Lend blocks that the device is still writing. What it needs is kept until it has."""
        with self._lock:
            for held in written_later.blocks:
                self._lent[held.number] = self._in_flight.pop(held.number)
                self._announced[held.number] = written_later

    def written(self, blocks: Iterable[HeldBlock]) -> None:
        """Note that the device has finished writing blocks that were announced."""
        with self._lock:
            for held in blocks:
                self._announced.pop(held.number, None)

    def take_back(self, numbers: Iterable[int]) -> None:
        """End leases whose packets no consumer has."""
        with self._lock:
            self._end_leases(numbers)

    def take_back_all_of(self, name: str) -> None:
        """End the leases under a name. It looks at every one: for what is rare.

        Their segments are announced again: perhaps it was these that the consumer could not have.
        """
        with self._lock:
            theirs = [held for held in self._lent.values() if held.name == name]
            self._end_leases([held.number for held in theirs])
            for number in {held.block.segment for held in theirs}:
                self._segments.announce_again(number)

    def connect(self, channel: Channel) -> None:
        """Send the consumer's end of the return pipe and all segments."""
        with self._lock:
            self._segments.connect(channel, self.returns.writing_end)
            self.returns.hand_over()

    def reserve(self, nbytes: int) -> None:
        """Grow to at least `nbytes` of segments."""
        with self.gate, self._lock:
            while self._allocator.total_bytes < nbytes:
                self._segments.grow(nbytes - self._allocator.total_bytes)

    def give_back_free(self) -> int:
        """Give segments back of which no block is in use; return their bytes."""
        with self.gate, self._lock:
            self._collect()
            return self._segments.give_back_free()

    def stats(self) -> ArenaStats:
        """Return sizes and counts of this moment."""
        may_ask_device = self.gate.try_begin()
        try:
            return self._stats(may_ask_device)
        finally:
            if may_ask_device:
                self.gate.end()

    def _stats(self, may_ask_device: bool) -> ArenaStats:
        with self._lock:
            self._collect(may_ask_device)
            allocator, segments = self._allocator, self._segments
            return ArenaStats(
                cap=segments.cap,
                total_bytes=allocator.total_bytes,
                used_bytes=allocator.used_bytes,
                peak_used_bytes=self._peak,
                largest_free=allocator.largest_free,
                free_ranges=allocator.free_ranges,
                segments=len(segments.all),
                grown=self._grown,
                given_back=segments.given_back,
                in_flight=len(self._in_flight) - sum(len(r.blocks) for r in self._retired),
                lent=len(self._lent),
                retired=sum(len(retired.blocks) for retired in self._retired),
                registered=bool(segments.all)
                and all(made.is_registered for made in segments.all.values()),
                reason=next((made.refusal for made in segments.all.values() if made.refusal), ""),
                numa_node=segments.node,
                consumer_gone=self.returns.ended,
            )

    def await_device(self, timeout: float) -> None:
        """Block until the device has written all that nobody wants any more.

        Raises `DrainTimeoutError` after `timeout` seconds, and what a lost device raises.
        """
        deadline = time.monotonic() + timeout
        with self.gate, self._lock:
            self._collect()
            for retired in [*self._retired, *self._announced.values()]:
                if not self._has_written(retired, max(0.0, deadline - time.monotonic())):
                    raise DrainTimeoutError(
                        f"the device was still writing to shared memory after {timeout} s: the "
                        "arena keeps it. Close it again when the device has finished."
                    )
            self._collect()

    def _has_written(self, retired: Retired, timeout: float) -> bool:
        if retired.done is None:
            return True
        try:
            return self.platform.synchronize_event(retired.done, timeout)
        except RuntimeError:  # its event cannot be waited for: perhaps the device can
            self.platform.synchronize(self._device)
            return True

    def release(self) -> None:
        """Unregister and close everything. The device must have finished."""
        with self.gate, self._lock:
            self._segments.close()
            self.returns.close()

    # Under the lock -----------------------------------------------------------

    def _take(self, nbytes: int, name: str) -> HeldBlock:
        block = self._allocator.allocate(nbytes)
        if block is None:
            try:
                self._segments.grow(nbytes)
            except SegmentRefusedError as error:
                raise self._segments.full_error(nbytes, str(error)) from error
            self._grown += 1
            block = self._allocator.allocate(nbytes)
            assert block is not None, "a new segment holds what it was made for"
        held = HeldBlock(next(self._numbers), block, nbytes, name)
        self._in_flight[held.number] = held
        return held

    def _check_leases(self, more: int) -> None:
        limit = self.returns.capacity
        if len(self._in_flight) + len(self._lent) + more > limit:
            raise ArenaFullError(
                f"{len(self._in_flight)} blocks are being written and {len(self._lent)} are lent: "
                f"with {more} more there would be over {limit}, the limit of open leases that the "
                "size of a pipe sets. Let go of results, or hand over fewer, larger leaves."
            )

    def _free(self, blocks: Iterable[HeldBlock]) -> None:
        for held in blocks:
            del self._in_flight[held.number]
            self._allocator.free(held.block)

    def _end_leases(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            held = self._lent.pop(number, None)
            if held is None:  # the worker took it back before
                continue
            announced = self._announced.pop(number, None)
            if announced is None:
                self._allocator.free(held.block)
            else:  # the consumer wants it no more, and the device may still be writing it
                self._in_flight[number] = held
                self._retired.append(announced._replace(blocks=(held,)))

    def _collect(self, may_ask_device: bool = True) -> None:
        """Free what has come back since the last time. Does not wait for anything."""
        self._end_leases(self.returns.read())
        if self.returns.ended:
            self._end_leases(list(self._lent))
        while self.abandoned:
            self._retired.append(self.abandoned.popleft())
        if may_ask_device and self._announced:
            for number in [n for n, lent in self._announced.items() if _is_written(lent)]:
                del self._announced[number]
        waiting = []
        for retired in self._retired:
            if may_ask_device and _is_written(retired):
                self._free(retired.blocks)
            else:
                waiting.append(retired)
        self._retired = waiting


def _is_written(retired: Retired) -> bool:
    try:
        return retired.is_written()
    except RuntimeError as error:
        # A device that fails says no more what it does: the block is not used again.
        logger.warning("a block stays out of use, as its device failed: %s", str(error))
        return False
