"""Keeps the executor's device calls and a graph capture apart.

While a graph is captured, allocations and event queries on *any* thread may
invalidate the capture (CUDA's global capture mode). Every device call of the
executor is therefore bracketed by `begin` and `end`, and `hold` keeps them out.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

from omni_platforms.errors import CaptureError


class CaptureGate:
    """Many device calls, or one or more captures, never both at once.

    `with gate:` stands around a device call, `with gate.hold():` around a capture.
    A device call that meets no capture takes no lock: it enters itself first
    and looks for captures then, and a capture does it the other way round.
    """

    def __init__(self) -> None:
        self._calls: deque[None] = deque()  # its appends and pops are atomic
        self._captures = 0
        self._holders: set[int] = set()
        self._changed = threading.Condition(threading.Lock())

    def begin(self) -> None:
        """Start a device call; blocks while a capture is held.

        Raises `CaptureError` on the thread that holds the capture, which would
        wait for itself.
        """
        self._calls.append(None)
        if self._captures:
            self.end()
            self._begin_after_captures()

    def try_begin(self) -> bool:
        """Start a device call and return true, or return false while a capture is held."""
        self._calls.append(None)
        if self._captures:
            self.end()
            return False
        return True

    def end(self) -> None:
        """End a device call."""
        self._calls.pop()
        if self._captures:
            self._tell()

    __enter__ = begin

    def __exit__(self, *exc_info: object) -> None:
        self._calls.pop()
        if self._captures:
            self._tell()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _begin_after_captures(self) -> None:
        with self._changed:
            while self._captures:
                if threading.get_ident() in self._holders:
                    raise CaptureError(
                        "this thread holds capture_guard(): submit, wait for and drain outputs "
                        "before or after the capture, not inside it"
                    )
                self._changed.wait()
            self._calls.append(None)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep device calls out for a `with` block; blocks until those under way have ended.

        Not for one thread twice: raises `CaptureError`.
        """
        thread = threading.get_ident()
        with self._changed:
            if thread in self._holders:
                raise CaptureError("this thread already holds capture_guard()")
            self._holders.add(thread)
            self._captures += 1
            while self._calls:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._captures -= 1
                self._holders.discard(thread)
                self._changed.notify_all()
