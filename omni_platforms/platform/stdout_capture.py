"""Keep what one thread prints, and let everybody else's prints through."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast


class ThreadStdout:
    """Stands in for `sys.stdout` while one thread's prints are kept.

    Every other thread reaches the real stream, so nothing of theirs is lost or
    delayed. Once `release()` was called it only passes through: somebody may
    still hold it, and thread ids are used again.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._bytes = io.BytesIO()
        self._kept = io.TextIOWrapper(self._bytes, encoding="utf-8", write_through=True)
        self._thread: int | None = None

    def keep_this_thread(self) -> None:
        """Keep what the calling thread prints from now on."""
        self._thread = threading.get_ident()

    def release(self) -> None:
        """Pass everything through from now on."""
        self._thread = None

    def text(self) -> str:
        """Return what was kept so far."""
        return self._bytes.getvalue().decode("utf-8", "replace")

    def fileno(self) -> int:
        """Return the real stream's descriptor, which a child process may inherit."""
        return cast(int, self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        mine = threading.get_ident() == self._thread
        return getattr(self._kept if mine else self._stream, name)


@contextlib.contextmanager
def capture_stdout() -> Iterator[ThreadStdout]:
    """Put a `ThreadStdout` in place of `sys.stdout`, and take it away at the end.

    Whoever replaced `sys.stdout` in between keeps their replacement.
    """
    previous = sys.stdout
    capture = ThreadStdout(previous)
    if previous is None:  # a process without standard output: there is nothing to protect
        yield capture
        return
    sys.stdout = cast(Any, capture)
    try:
        yield capture
    finally:
        capture.release()
        if sys.stdout is cast(Any, capture):
            sys.stdout = previous
