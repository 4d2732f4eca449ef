"""The consumer's segments: known by their descriptors, mapped when a packet needs them."""

from __future__ import annotations

import logging
import os
import threading

from omni_platforms.errors import CorruptPacketError, SegmentRefusedError
from omni_platforms.shm.passing import Channel, Notice, Receiver
from omni_platforms.shm.returns import ReturnEnd
from omni_platforms.shm.segment import Segment

logger = logging.getLogger(__name__)

_ANNOUNCED_TIMEOUT_S = 1.0  # it was sent before the packet that needs it


class MappedSegments:
    """Follows what the worker says of its segments. Any thread may call the methods.

    A segment is mapped when it is first asked for: then
    somebody has a lease in it, and it cannot be one that is gone by now.
    """

    def __init__(self, channel: Channel, timeout: float) -> None:
        """Take a copy of the channel's descriptor, and block until the first message is here.

        Raises `CorruptPacketError` when nothing comes within `timeout` seconds, and
        `SegmentRefusedError` when a segment cannot be mapped.
        """
        self._lock = threading.RLock()  # a finalizer may unpack on a thread that is in here
        self._mapped: dict[int, Segment] = {}
        self._descriptors: dict[int, int] = {}
        """Of segments that are not mapped yet."""
        self._refused = ""
        """Why a segment could not be received or mapped."""
        self._next = 0
        self.end: ReturnEnd | None = None
        """Where leases are returned to, until `close`."""
        self._receiver: Receiver | None = Receiver(channel)
        try:
            first = self._receiver.receive(timeout)
            if not first.descriptors:
                raise CorruptPacketError("an arena says first where its leases are returned to")
            self.end = ReturnEnd(first.descriptors[0])
            self._enter(Notice(first.first, first.descriptors[1:]))
            for number in list(self._descriptors):
                self._map(number)
        except BaseException:
            self.close()
            raise

    def get(self, number: int) -> Segment:
        """Return a segment. Blocks for as long as mapping it takes, where it is new.

        Raises `CorruptPacketError` for one that the worker does not speak of, and
        `SegmentRefusedError` for one that cannot be had here.
        """
        with self._lock:
            while number >= self._next and self._has_more(_ANNOUNCED_TIMEOUT_S):
                self._receive()
            if number in self._descriptors:
                self._map(number)
            if number in self._mapped:
                return self._mapped[number]
        if self._refused:
            raise SegmentRefusedError(self._refused)
        raise CorruptPacketError(f"segment {number} is not one of this arena, or it is gone")

    def take_in(self) -> None:
        """Take in what the worker has said: also which segments are gone. Does not block."""
        with self._lock:
            while self._has_more(0.0):
                self._receive()

    def close(self) -> None:
        """Let go of all segments; what views them keeps their memory."""
        with self._lock:
            self.end = None
            self._mapped.clear()
            while self._descriptors:
                os.close(self._descriptors.popitem()[1])
            self._hear_no_more()

    def _has_more(self, timeout: float) -> bool:
        return self._receiver is not None and self._receiver.is_waiting(timeout)

    def _receive(self) -> None:
        assert self._receiver is not None
        try:
            self._enter(self._receiver.receive(0.0))
        except SegmentRefusedError as error:
            self._refused, self._next = str(error), self._next + 1
        except CorruptPacketError as error:
            # The worker is gone, or what it says makes no sense: what is here stays usable.
            logger.debug("no more is heard of an arena's segments: %s", str(error))
            self._hear_no_more()

    def _enter(self, notice: Notice) -> None:
        if not notice.descriptors:
            self._mapped.pop(notice.first, None)
            descriptor = self._descriptors.pop(notice.first, None)
            if descriptor is not None:
                os.close(descriptor)
        for number, descriptor in enumerate(notice.descriptors, notice.first):
            if number in self._mapped or number in self._descriptors:  # it was announced again
                os.close(descriptor)
            else:
                self._descriptors[number] = descriptor
            self._next = max(self._next, number + 1)

    def _map(self, number: int) -> None:
        try:
            self._mapped[number] = Segment.attach(self._descriptors.pop(number))
        except SegmentRefusedError as error:
            self._refused = str(error)
            raise

    def _hear_no_more(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()
