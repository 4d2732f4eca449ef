"""Keeps the executor's device calls and a graph capture apart.

While a graph is captured, allocations and event queries on *any* thread may
invalidate the capture (CUDA's global capture mode). Every device call of the
executor is therefore bracketed by `begin` and `end`, and `hold` keeps them out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from omni_platforms.errors import CaptureError


class CaptureGate:
    """Many device calls, or one or more captures, never both at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._calls = 0
        self._captures = 0
        self._holders: set[int] = set()

    def begin(self) -> None:
        """Start a device call; blocks while a capture is held.

        Raises `CaptureError` on the thread that holds the capture, which would
        wait for itself.
        """
        with self._lock:
            while self._captures:
                if threading.get_ident() in self._holders:
                    raise CaptureError(
                        "this thread holds capture_guard(): submit, wait for and drain outputs "
                        "before or after the capture, not inside it"
                    )
                self._changed.wait()
            self._calls += 1

    def try_begin(self) -> bool:
        """Start a device call and return true, or return false while a capture is held."""
        with self._lock:
            if self._captures:
                return False
            self._calls += 1
            return True

    def end(self) -> None:
        """End a device call."""
        with self._lock:
            self._calls -= 1
            if self._captures and not self._calls:
                self._changed.notify_all()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep device calls out for a `with` block; blocks until those under way have ended.

        Not for one thread twice: raises `CaptureError`.
        """
        thread = threading.get_ident()
        with self._lock:
            if thread in self._holders:
                raise CaptureError("this thread already holds capture_guard()")
            self._holders.add(thread)
            self._captures += 1
            while self._calls:
                self._changed.wait()
        try:
            yield
        finally:
            with self._lock:
                self._captures -= 1
                self._holders.discard(thread)
                self._changed.notify_all()
