"""Backpressure: how many outputs, and how many bytes, may be in flight."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from omni_platforms.errors import ExecutorFullError

WhenFull = Literal["block", "raise", "degrade"]


class Bounds:
    """Counts what is in flight against two limits. Any thread may call any method.

    Bytes are bytes of pinned host memory, as the platform's allocator rounds
    them. An output that is larger than the limit by itself is let in alone.
    """

    def __init__(self, max_bytes: int, max_count: int) -> None:
        if max_bytes <= 0 or max_count <= 0:
            raise ValueError(
                f"max_pending_bytes and max_pending must be positive, not {max_bytes} and "
                f"{max_count}"
            )
        self.max_bytes = max_bytes
        self.max_count = max_count
        self.bytes = 0
        self.count = 0
        self.peak_bytes = 0
        self.entered = 0
        self._waiting = 0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def try_enter(self, nbytes: int) -> bool:
        """Count `nbytes` in and return true, or change nothing and return false."""
        with self._lock:
            total = self.bytes + nbytes
            if self.count >= self.max_count or (self.count and total > self.max_bytes):
                return False
            self.count += 1
            self.entered += 1
            self.bytes = total
            if total > self.peak_bytes:
                self.peak_bytes = total
            return True

    def enter(self, nbytes: int, still_open: Callable[[], bool]) -> bool:
        """Block until there is room and count `nbytes` in.

        Returns false, with nothing counted, when `still_open()` became false;
        whoever changes that calls `wake()`.
        """
        with self._lock:
            self._waiting += 1
            try:
                while still_open():
                    if self.try_enter(nbytes):
                        return True
                    self._changed.wait()
            finally:
                self._waiting -= 1
        return False

    def enter_uncounted(self) -> None:
        """Count in an output that takes no bytes and ignores the limits."""
        with self._lock:
            self.count += 1
            self.entered += 1

    def change(self, difference: int) -> None:
        """Correct the bytes of an output that is already counted in."""
        with self._lock:
            self.bytes += difference
            self.peak_bytes = max(self.peak_bytes, self.bytes)

    def leave(self, nbytes: int, count: int = 1) -> None:
        """Count out `count` outputs of `nbytes` together."""
        with self._lock:
            self.bytes -= nbytes
            self.count -= count
            if self._waiting:
                self._changed.notify_all()

    def wake(self) -> None:
        """Make every blocked `enter` look at `still_open` again."""
        with self._lock:
            self._changed.notify_all()

    def full_error(self, nbytes: int) -> ExecutorFullError:
        """Return the error for an output that found no room."""
        return ExecutorFullError(
            f"no room for an output of {nbytes} bytes: {self.count} outputs "
            f"({self.bytes} bytes) are in flight, the limits are max_pending={self.max_count} and "
            f"max_pending_bytes={self.max_bytes}. Take results first, raise the limits, or use "
            'when_full="block".'
        )
