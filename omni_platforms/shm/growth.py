"""The segments of an arena: made, registered and announced to the consumer, up to a cap.

A segment of which no block is in use can be given back: unregistered, its pages
returned to the system, and the consumer told to unmap it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Mapping

import torch

from omni_platforms.errors import (
    ArenaClosedError,
    ArenaFullError,
    HostRegistrationError,
    SegmentRefusedError,
)
from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.shm import named
from omni_platforms.shm.allocator import ALIGNMENT, Allocator, round_up
from omni_platforms.shm.memory_left import memory_left
from omni_platforms.shm.passing import MOST, Channel, Notice, Sender
from omni_platforms.shm.registered import WritableSegment
from omni_platforms.shm.segment import Segment

logger = logging.getLogger(__name__)

_SHARE = 4  # the default cap is a quarter of what is left


class Segments:
    """Grows an allocator. Methods are called under the arena's lock."""

    def __init__(
        self, platform: OmniPlatform, device: torch.device, cap: int | None, segment_bytes: int
    ) -> None:
        if segment_bytes <= 0 or (cap is not None and cap < ALIGNMENT):
            raise ValueError(
                f"an arena needs a positive segment_bytes, not {segment_bytes}, and a cap of at "
                f"least {ALIGNMENT} bytes, not {cap}"
            )
        self.allocator = Allocator()
        self.all: dict[int, WritableSegment] = {}
        """By their numbers, in the order in which they were made."""
        self.given_back = 0
        self.cap, self._cap_origin = _cap(cap)
        self.node = platform.numa_node(device.index or 0)
        self._platform = platform
        self._device = device
        self._step = min(round_up(segment_bytes), max(self.cap, ALIGNMENT))
        self._sender: Sender | None = None
        if not hasattr(os, "memfd_create"):
            named.sweep()

    def grow(self, nbytes: int) -> None:
        """Add a segment with room for a block of `nbytes`.

        Where the cap or the system leaves no room for it, and segments of which nothing is in
        use would make it, these are given back first. Blocks for about 0.4 ms a megabyte.
        Raises `ArenaFullError` when the cap forbids it, `SegmentRefusedError` when the
        system does, and `ArenaClosedError` when the consumer is gone.
        """
        needed = round_up(nbytes)
        self._make_room(needed - self._room())
        if needed > self._room():
            raise self.full_error(nbytes, f"the cap of {self.cap} bytes ({self._cap_origin})")
        size = max(needed, min(self._step, self._room()))
        try:
            self._add(size)
        except SegmentRefusedError as error:
            # The system may have less than a whole step left, or get enough back from us.
            if not (self._helps(error) and self._make_room(needed)) and size == needed:
                raise
            self._add(needed)

    def _helps(self, refused: SegmentRefusedError) -> bool:
        """Whether other segments are what the system refuses this one for."""
        return getattr(refused.__cause__, "errno", None) != errno.EFBIG

    def _room(self) -> int:
        return self.cap - self.allocator.total_bytes

    def _add(self, size: int) -> None:
        segment = Segment.create(size, self.node)
        with contextlib.ExitStack() as undo:
            undo.callback(segment.close)
            made = WritableSegment(segment, self._platform, self._device)
            undo.callback(made.close)
            number = self.allocator.add_segment(segment.size)
            undo.callback(self.allocator.remove_segment, number)
            self._tell(Notice(number, [segment.descriptor]))
            undo.pop_all()
        self.node = segment.node
        self.all[number] = made

    # Giving back --------------------------------------------------------------

    def _make_room(self, nbytes: int) -> bool:
        """Give back as few segments as make up `nbytes`; none, and false, where all would not."""
        free = self.allocator.whole_free_segments()
        if not 0 < nbytes <= sum(free.values()):
            return False
        for number in fewest(free, nbytes):
            try:
                self._give_back(number)
            except HostRegistrationError as error:
                logger.warning("segment %d is kept, and staged: %s", number, str(error))
        return True

    def give_back_free(self) -> int:
        """Give back every segment of which no block is in use; return their bytes.

        Raises `HostRegistrationError` when the device refuses to unregister one.
        """
        before, errors = self.allocator.total_bytes, []
        for number in self.allocator.whole_free_segments():
            try:
                self._give_back(number)
            except HostRegistrationError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return before - self.allocator.total_bytes

    def _give_back(self, number: int) -> None:
        """Give back a segment that the device has finished with, and nobody has a view of."""
        if self._sender is not None and self._sender.would_block():
            logger.info("segment %d is kept: the consumer does not take notice", number)
            return
        made = self.all[number]
        made.close()
        self.allocator.remove_segment(number)
        del self.all[number]
        made.segment.give_up()
        self.given_back += 1
        with contextlib.suppress(ArenaClosedError):  # nobody has it mapped any more
            self._tell(Notice(number))

    def full_error(self, nbytes: int, limit: str) -> ArenaFullError:
        """Return the error for a block of `nbytes` that `limit` does not allow."""
        allocator = self.allocator
        never = " It is larger than the whole arena may be." if nbytes > self.cap else ""
        error = ArenaFullError(
            f"there is no room for a block of {nbytes} bytes: {allocator.used_bytes} of "
            f"{allocator.total_bytes} bytes are in use, the largest free range has "
            f"{allocator.largest_free}, and the arena may not grow. The limit: {limit}.{never} Let "
            "go of results, or raise the limit."
        )
        error.never_fits = nbytes > self.cap
        return error

    def connect(self, channel: Channel, return_end: int) -> None:
        """Send the return pipe's end and all segments to the consumer."""
        if self._sender is not None:
            raise ValueError("this arena has a consumer already: make one arena for each")
        sender = Sender(channel)
        try:
            for notice in self._first_notices(return_end):
                sender.send(notice)
        except BaseException:
            sender.close()
            raise
        self._sender = sender

    def announce_again(self, number: int) -> None:
        """Send a segment's descriptor again: the system may have refused it to the consumer."""
        if self._sender is not None and not self._sender.would_block():
            with contextlib.suppress(ArenaClosedError):
                self._tell(Notice(number, [self.all[number].segment.descriptor]))

    def _first_notices(self, return_end: int) -> Iterator[Notice]:
        """Yield what a consumer is told first: most often all of it is one message."""
        first, descriptors = next(iter(self.all), 0), [return_end]
        for number, made in self.all.items():
            follows = number == first + len(descriptors) - (return_end in descriptors)
            if not follows or len(descriptors) == MOST:
                yield Notice(first, descriptors)
                first, descriptors = number, []
            descriptors.append(made.segment.descriptor)
        yield Notice(first, descriptors)

    def _tell(self, notice: Notice) -> None:
        if self._sender is None:
            return
        try:
            self._sender.send(notice)
        except ConnectionError as error:
            raise ArenaClosedError(
                "the consumer of this arena is gone: nobody can receive an output of it any more"
            ) from error

    def close(self) -> None:
        """Unregister and close all segments. Raises `HostRegistrationError`."""
        while self.all:
            number = next(reversed(self.all))
            self.all[number].close()
            del self.all[number]
        self.allocator = Allocator()
        if self._sender is not None:
            self._sender.close()


def fewest(sizes: Mapping[int, int], nbytes: int) -> Iterator[int]:
    """Yield the keys of as few of the sizes as make up `nbytes`: the smallest that will do."""
    left = dict(sizes)
    while nbytes > 0:
        enough = [number for number, size in left.items() if size >= nbytes]
        number = min(enough, key=left.__getitem__) if enough else max(left, key=left.__getitem__)
        yield number
        nbytes -= left.pop(number)


def default_cap() -> int:
    """Return the cap of an arena that nobody gave one: bytes. Does not block."""
    return memory_left().nbytes // _SHARE // ALIGNMENT * ALIGNMENT


def _cap(cap: int | None) -> tuple[int, str]:
    if cap is not None:
        return cap // ALIGNMENT * ALIGNMENT, "as it was asked for"
    return default_cap(), f"a quarter of {memory_left().limit}"
