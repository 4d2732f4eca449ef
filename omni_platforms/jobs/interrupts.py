"""Ctrl-C and SIGTERM: the first stops a job cleanly, the second ends this process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"  # which a progress bar hides


class Interrupts:
    """Handles the signals while it is entered; a signal that is ignored stays so.

    Outside `handled_by` the first one raises `KeyboardInterrupt`. Only the main thread can
    handle signals: in any other nothing happens. `signal` is the first one that came.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[int, Any] = {}
        self._handle: Callable[[], object] = _raise

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def handled_by(self, handle: Callable[[], object]) -> Iterator[None]:
        """Have the first signal call `handle`, which must be short and take no lock."""
        self._handle = handle
        try:
            yield
        finally:
            self._handle = _nothing  # the job is over: what is left takes a moment

    @property
    def exit_status(self) -> int | None:
        """The exit status of a process that a signal stopped, `None` when none came."""
        return None if self.signal is None else 128 + self.signal

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            _leave(number)
        self.signal = signal.Signals(number)
        self._handle()


def _raise() -> None:
    raise KeyboardInterrupt


def _nothing() -> None:
    return


def _leave(number: int) -> None:
    """End now. The kernel ends the workers, whose lifelines close with this process."""
    cursor = _SHOW_CURSOR if sys.__stderr__ is not None and sys.__stderr__.isatty() else b""
    os.write(2, cursor + b"\nomni-platforms: ended at once; finished requests are saved\n")
    os._exit(128 + number)
