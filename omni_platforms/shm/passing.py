"""Descriptors from the worker to the consumer, over a Unix socket of their own.

Nothing else may use the socket. The first message carries the consumer's end of
the return pipe and the first segments, a later one each segment that was added,
or the number of one that is gone. Segments are numbered in the order in which they
were made. A descriptor is sent before any packet that needs it, and a segment is gone
when no packet and no lease needs it any more.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from omni_platforms.errors import CorruptPacketError
from omni_platforms.shm.segment import typed_refusal

_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"OmFd"
_GONE = b"OmGo"
MOST = 128  # Linux refuses more than 253 in one message


@dataclass(frozen=True)
class Notice:
    """One message of `Sender`."""

    first: int
    """The number of the first segment that it is about."""
    descriptors: Sequence[int] = ()
    """Of segments with numbers from `first` on, now the receiver's; of the first message the
    return pipe's before them. None: segment `first` is gone."""


class Channel(Protocol):
    """A Unix socket, or one end of `multiprocessing.Pipe()`, which is one too."""

    def fileno(self) -> int:
        """Return its descriptor."""
        ...


class Sender:
    """The worker's end of the socket: it knows what was sent already."""

    def __init__(self, channel: Channel) -> None:
        """Take a copy of the channel's descriptor; the channel itself may be closed."""
        self._socket = _socket(channel)

    def send(self, notice: Notice) -> None:
        """Send a notice; its descriptors stay the caller's. Raises `OSError`: nobody is there."""
        descriptors, first = notice.descriptors, notice.first
        if len(descriptors) > MOST:
            raise ValueError(f"{len(descriptors)} descriptors are too many for one message")
        head = _HEAD.pack(_MAGIC if descriptors else _GONE, len(descriptors), first)
        if descriptors:
            socket.send_fds(self._socket, [head], descriptors)
        else:
            self._socket.sendall(head)

    def would_block(self) -> bool:
        """Whether the consumer has left so many messages unread that a `send` would wait."""
        poller = select.poll()
        poller.register(self._socket, select.POLLOUT)
        return not poller.poll(0)

    def close(self) -> None:
        """Close the copy."""
        self._socket.close()


class Receiver:
    """The consumer's end of the socket. One thread at a time may call it."""

    def __init__(self, channel: Channel) -> None:
        """Take a copy of the channel's descriptor; the channel itself may be closed."""
        self._socket = _socket(channel)
        self._poller = select.poll()
        self._poller.register(self._socket, select.POLLIN)

    def is_waiting(self, timeout: float) -> bool:
        """Whether there is something to receive, or the end, within `timeout` seconds."""
        return bool(self._poller.poll(timeout * 1e3))

    def receive(self, timeout: float) -> Notice:
        """Return the next message; its descriptors are now the caller's.

        Waits at most `timeout` seconds. Raises `CorruptPacketError` when none
        came, the worker is gone, or the message is not one of `Sender`.
        """
        if not self.is_waiting(timeout):
            raise CorruptPacketError(f"no descriptors of segments came within {timeout} s")
        data, descriptors, flags, _ = socket.recv_fds(self._socket, _HEAD.size, MOST)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        first = _first_of(data, len(descriptors))
        if first is not None:
            return Notice(first, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        if flags & socket.MSG_CTRUNC:
            with typed_refusal("the descriptors of segments"):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        what = f"a message of {len(data)} bytes with {len(descriptors)} descriptors"
        raise CorruptPacketError(
            f"{what} came where an arena's segments were expected"
            if data
            else "the worker closed the socket that its segments come over"
        )

    def close(self) -> None:
        """Close the copy."""
        self._socket.close()


def _first_of(data: bytes, descriptors: int) -> int | None:
    """Return the number in a message, or `None` when it is not one of `Sender`."""
    if len(data) != _HEAD.size:
        return None
    magic, count, first = _HEAD.unpack(data)
    whole = count == descriptors and magic == (_MAGIC if descriptors else _GONE)
    return int(first) if whole else None


def _socket(channel: Channel) -> socket.socket:
    copy = socket.socket(fileno=os.dup(channel.fileno()))
    if copy.family != socket.AF_UNIX:
        copy.close()
        raise ValueError("descriptors can only pass through a Unix socket, such as a socketpair")
    copy.setblocking(True)
    return copy
