"""A channel: whole messages over one end of a socket pair, from many threads to one reader.

A message is sent in frames of at most 32 KiB, each written by one call. Linux
takes such a frame whole or not at all, so that an exception of a signal handler
(Ctrl-C) can end a message but never a frame. Between two frames of a long
message other threads' short ones pass, so that one large reply does not hold them up.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import struct
import threading
import time
from typing import Any

from omni_platforms.engine.messages import Message
from omni_platforms.engine.wire import decode, encode
from omni_platforms.errors import ChannelBrokenError, ChannelClosedError

_FRAME = struct.Struct("<4sHHII")  # magic, version, flags, the message's number, bytes
_MAGIC, _VERSION = b"OmFr", 1
_LAST, _ABANDONED = 1, 2
FRAME_BYTES = (32 << 10) - _FRAME.size
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class Channel:
    """One end. Any thread may `send`; one thread at a time may `receive`.

    `death` is a descriptor that becomes readable when the process at the other
    end is dead (a pidfd): its forked children may keep the other end open. It
    stays the caller's.
    """

    def __init__(self, end: socket.socket, death: int | None = None) -> None:
        self._socket = end
        end.setblocking(True)
        self.death = death
        self._door = threading.Lock()  # held by who sends one frame, waiting included
        self._writing = threading.Lock()
        self._numbers = itertools.count()
        self._received = bytearray()
        self._partial: dict[int, bytearray] = {}
        self._closed = False

    def fileno(self) -> int:
        """Return the socket's descriptor, for `select` and others; -1 once closed."""
        return self._socket.fileno()

    # Sending ------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Send one message. Blocks while the reader is behind by more than the socket holds.

        Raises `ChannelClosedError` when the other end is gone.
        """
        data = b"".join(encode(message))
        try:
            if len(data) <= FRAME_BYTES:
                with self._door, self._writing:
                    self._write(next(self._numbers), _LAST, data)
            else:
                self._send_long(memoryview(data))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise self._gone() from error
        except OSError as error:
            if self._closed:
                raise self._gone() from error
            raise

    def _send_long(self, data: memoryview) -> None:
        number = next(self._numbers)
        try:
            for start in range(0, len(data), FRAME_BYTES):
                with self._door:  # whoever waits with a short message comes first
                    pass
                last = _LAST if start + FRAME_BYTES >= len(data) else 0
                with self._writing:
                    self._write(number, last, data[start : start + FRAME_BYTES])
        except OSError:
            raise
        except BaseException:
            with self._door, self._writing:
                self._write(number, _ABANDONED, b"")
            raise

    def _write(self, number: int, flags: int, data: Any) -> None:
        number &= 0xFFFFFFFF
        header = _FRAME.pack(_MAGIC, _VERSION, flags, number, len(data))
        sent = self._socket.sendmsg([header, data], [], _NO_SIGNAL)
        if sent < len(header) + len(data):  # systems other than Linux
            self._socket.sendall((header + bytes(data))[sent:], _NO_SIGNAL)

    # Receiving ----------------------------------------------------------------

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message. Blocks, at most `timeout` seconds (for ever when `None`).

        Raises `TimeoutError`; `ChannelClosedError` when the other end is gone and
        everything that it sent was received; `ChannelBrokenError` when what comes
        is no message, after which nothing can be received; `CorruptMessageError`
        for one bad message, after which the next can be.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (data := self._next_message()) is None:
            self._fill(deadline)
        return decode(data)

    def _next_message(self) -> bytearray | None:
        """Take frames out of what was received until a message is whole."""
        while (frame := self._next_frame()) is not None:
            flags, number, data = frame
            if flags & _ABANDONED:
                self._partial.pop(number, None)
            elif number not in self._partial and flags & _LAST:
                return data
            else:
                whole = self._partial.setdefault(number, bytearray())
                whole += data
                if flags & _LAST:
                    return self._partial.pop(number)
        return None

    def _next_frame(self) -> tuple[int, int, bytearray] | None:
        received = self._received
        if len(received) < _FRAME.size:
            return None
        magic, version, flags, number, nbytes = _FRAME.unpack_from(received)
        if magic != _MAGIC or version != _VERSION or nbytes > FRAME_BYTES:
            raise ChannelBrokenError(
                f"the channel is broken: {bytes(received[: _FRAME.size])!r} came where a frame of "
                "version 1 was expected. Something else writes to it, or the release at the other "
                "end is another one."
            )
        end = _FRAME.size + nbytes
        if len(received) < end:
            return None
        data = received[_FRAME.size : end]
        del received[:end]
        return flags, number, data

    def _fill(self, deadline: float | None) -> None:
        if deadline is not None or self.death is not None:
            self._await_bytes(deadline)
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            if not (self._closed or isinstance(error, ConnectionResetError)):
                raise
            data = b""
        if not data:
            raise self._gone()
        self._received += data

    def _await_bytes(self, deadline: float | None) -> None:
        poller = select.poll()
        own = self._socket.fileno()
        if own < 0:
            raise self._gone()
        poller.register(own, select.POLLIN)
        if self.death is not None:
            poller.register(self.death, select.POLLIN)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
        ready = [descriptor for descriptor, _ in poller.poll(left)]
        if not ready:
            raise TimeoutError("no message came in time")
        if own not in ready:  # dead, and all that it had sent was received
            raise self._gone()

    def _gone(self) -> ChannelClosedError:
        if self._closed:
            return ChannelClosedError("this end of the channel was closed")
        where = " in the middle of a message" if self._received or self._partial else ""
        return ChannelClosedError(f"the process at the other end is gone{where}")

    # The end ------------------------------------------------------------------

    def close(self) -> None:
        """Close this end; whoever sends or receives on it gets `ChannelClosedError`."""
        self._closed = True
        with contextlib.suppress(OSError):  # the other end is gone already
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who waits on it
        self._socket.close()

    def leave_to_parent(self) -> None:
        """In a forked child: close its copy of this end, and nothing else."""
        self._closed = True
        if self._socket.fileno() >= 0:
            os.close(self._socket.detach())


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a new socket pair for a channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
