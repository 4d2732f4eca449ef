"""What a worker printed last: passed through as it comes, and kept for the error of its end."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections import deque

_LINES = 50
_LINE_BYTES = 2000


class LastOutput:
    """Reads the pipe that is a worker's standard output and standard error, on a thread.

    What comes goes to this process's standard error at once.
    """

    def __init__(self, pipe: int, name: str) -> None:
        """Take over the descriptor `pipe`."""
        self._pipe = pipe
        self._lines: deque[bytes] = deque(maxlen=_LINES)
        self._line = b""
        self._ending, self._end = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"omni-printed-{name}", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return the last lines."""
        lines = [*self._lines, self._line] if self._line else list(self._lines)
        return "\n".join(line.decode(errors="replace") for line in lines)

    def finish(self, timeout: float) -> None:
        """Wait until all was read, at most `timeout` seconds: the worker's children may have it."""
        self._thread.join(timeout)

    def close(self) -> None:
        """Stop to read, and close the pipe. Safe to call again."""
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        end, self._end = self._end, -1
        if end >= 0:
            os.close(end)

    def __del__(self) -> None:
        self._wake()  # the thread, which had this object, has ended

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies of the descriptors."""
        for descriptor in (self._pipe, self._ending, self._end):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._end = -1

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._pipe, select.POLLIN)
        poller.register(self._ending, select.POLLIN)
        try:
            while self._pipe in [descriptor for descriptor, _ in poller.poll()]:
                data = os.read(self._pipe, 1 << 14)
                if not data:
                    return
                self._keep(data)
                _pass_through(data)
        finally:
            os.close(self._pipe)
            os.close(self._ending)

    def _keep(self, data: bytes) -> None:
        *lines, rest = (self._line + data).split(b"\n")
        self._lines.extend(line[-_LINE_BYTES:] for line in lines)
        self._line = rest[-_LINE_BYTES:]


def _pass_through(data: bytes) -> None:
    # Whatever stands there for standard error, closed or full: the worker goes on.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(data.decode(errors="replace"))
        sys.stderr.flush()
