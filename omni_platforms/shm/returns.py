"""The way back of blocks: a pipe from the consumer's process to the worker's.

A consumer writes the number of a lease when its last view is gone; the worker
reads what has come whenever it needs a block. Writing takes no lock and never
waits: the worker has no more leases open than the pipe holds numbers. When the
consumer's process is gone, and no child of it holds the pipe either, reading
meets its end: nobody can see any block any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct

_NUMBER = struct.Struct("<Q")
_WANTED_BYTES = 256 << 10
_PAGE = 4096
_SURE_BYTES = 4096  # what every system's pipe holds


class ReturnPipe:
    """The worker's end, and the consumer's until it is handed over. One thread at a time reads."""

    def __init__(self) -> None:
        """Make the pipe. Raises `OSError` when there are no descriptors left."""
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self.capacity = _capacity(self._writing) // _NUMBER.size
        """How many numbers the pipe holds: so many leases may be open."""
        self.ended = False
        """The consumer is gone: every block is the worker's again."""

    @property
    def writing_end(self) -> int:
        """The descriptor that the consumer needs; -1 once it was handed over."""
        return self._writing

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when numbers have come, or the end has."""
        return self._reading

    def hand_over(self) -> None:
        """Close this process's copy of the consumer's end, which has been sent."""
        writing, self._writing = self._writing, -1
        if writing >= 0:
            os.close(writing)

    def read(self) -> list[int]:
        """Return the numbers of the leases that have ended. Does not block."""
        numbers: list[int] = []
        while not self.ended and self._reading >= 0:
            try:
                data = os.read(self._reading, 1 << 16)
            except BlockingIOError:
                break
            self.ended = not data
            # Whole numbers only: each is written, and stays, in one piece.
            numbers += [number for (number,) in _NUMBER.iter_unpack(data)]
        return numbers

    def wait(self, timeout: float | None) -> bool:
        """Block until numbers or the end have come, at most `timeout` seconds; return whether."""
        poller = select.poll()
        poller.register(self._reading, select.POLLIN)
        return bool(poller.poll(None if timeout is None else max(0.0, timeout) * 1e3))

    def close(self) -> None:
        """Close both ends. What the consumer returns later goes nowhere, without an error."""
        self.hand_over()
        reading, self._reading = self._reading, -1
        if reading >= 0:
            os.close(reading)


class ReturnEnd:
    """The consumer's end. It stays open until the view and the last lease are gone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __del__(self, close: object = os.close) -> None:
        with contextlib.suppress(OSError):
            close(self.descriptor)  # type: ignore[operator]


def as_record(number: int) -> bytes:
    """Return what a consumer writes to return lease `number`."""
    return _NUMBER.pack(number)


def _capacity(descriptor: int) -> int:
    """Return the bytes that surely fit: a page that is half read does not take new ones."""
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return _SURE_BYTES
    with contextlib.suppress(OSError):  # the user's share of pipe memory is taken: stay small
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _WANTED_BYTES)
    size = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
    return max(_SURE_BYTES, size - _PAGE)
