"""Descriptors from the worker to the consumer, over a Unix socket of their own.

Nothing else may use the socket. The first message carries the consumer's end of
the return pipe and the first segments, a later one each segment that was added.
A descriptor is sent before any packet that needs it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from collections.abc import Sequence
from typing import Protocol

from omni_platforms.errors import CorruptPacketError
from omni_platforms.shm.segment import typed_refusal

_COUNT = struct.Struct("<4sI")
_MAGIC = b"OmFd"
_MOST = 128  # Linux refuses more than 253 in one message


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

    def send(self, descriptors: Sequence[int]) -> None:
        """Send descriptors, which stay the caller's. Raises `OSError`: the consumer is gone."""
        for start in range(0, len(descriptors), _MOST):
            part = descriptors[start : start + _MOST]
            socket.send_fds(self._socket, [_COUNT.pack(_MAGIC, len(part))], part)

    def close(self) -> None:
        """Close the copy."""
        self._socket.close()


class Receiver:
    """The consumer's end of the socket."""

    def __init__(self, channel: Channel) -> None:
        """Take a copy of the channel's descriptor; the channel itself may be closed."""
        self._socket = _socket(channel)

    def receive(self, timeout: float) -> list[int]:
        """Return the descriptors of one message, which are now the caller's.

        Waits at most `timeout` seconds. Raises `CorruptPacketError` when none
        came, the worker is gone, or the message is not one of `Sender`.
        """
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        if not poller.poll(timeout * 1e3):
            raise CorruptPacketError(f"no descriptors of segments came within {timeout} s")
        data, descriptors, flags, _ = socket.recv_fds(self._socket, _COUNT.size, _MOST)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if data == _COUNT.pack(_MAGIC, len(descriptors)):
            return descriptors
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


def _socket(channel: Channel) -> socket.socket:
    copy = socket.socket(fileno=os.dup(channel.fileno()))
    if copy.family != socket.AF_UNIX:
        copy.close()
        raise ValueError("descriptors can only pass through a Unix socket, such as a socketpair")
    copy.setblocking(True)
    return copy
