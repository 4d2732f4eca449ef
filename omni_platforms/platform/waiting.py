"""Waiting for an event on the host by asking, with pauses that follow from earlier waits."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

import torch

# The first pauses are short, later ones grow with the time already waited, so
# that the wake-up is at most about 2 % late and 1 ms at worst.
_SHORTEST_PAUSE_S = 20e-6
# A pause of 20 us takes about 75 us on Linux, so a wait starts by asking at once
# and again: a few kilobytes arrive within this time.
_SPIN_S = 50e-6
_LONGEST_PAUSE_S = 1e-3
_PAUSE_SHARE = 0.02

# A thread that waits for one output after another waits about as long each time. From a
# little before that time to a little after it, it asks often: 12 MB are copied in 0.24 ms,
# and a pause of 1 ms would be four times that. The driver's own blocking wait and
# its callbacks wake a thread later than this (docs/performance.md).
_REMEMBERED = 3
_ALIKE = 1.5
_BEFORE, _AFTER = 0.9, 1.1
_NEAR_SHARE = 0.001

# Every question takes the interpreter's lock from whoever launches the next forward, which may
# cost that thread 50 us. A thread that spares others sleeps through most of a wait.
_SPARING_BEFORE = 0.95
_SPARING_SHARE = 0.01
_SPARING_SHARE_AT_FIRST = 0.05
_SPARING_PAUSE_S = 100e-6

_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1000


class _Habit(threading.local):
    """How long the last waits of this thread took, in seconds, for each thing it waits for."""

    def __init__(self) -> None:
        self.all: dict[str, deque[float]] = {}
        self.what = ""
        self.spares: Callable[[], bool] | None = None

    @property
    def waits(self) -> deque[float]:
        """The last waits for what the thread waits for now."""
        return self.all.setdefault(self.what, deque(maxlen=_REMEMBERED))

    def window(self) -> tuple[float, float]:
        """Return between which times the next wait is likely to end; nothing is (inf, 0)."""
        waits = self.waits
        if len(waits) == _REMEMBERED:
            shortest, longest = min(waits), max(waits)
            if longest <= shortest * _ALIKE:
                return shortest * _BEFORE, longest * _AFTER
        return float("inf"), 0.0


_habit = _Habit()


@contextlib.contextmanager
def waiting_for(what: str) -> Iterator[None]:
    """Remember the waits of a `with` block apart from the calling thread's others.

    For a thread that waits for different things in turn: each takes a time of its own.
    """
    outer, _habit.what = _habit.what, what
    try:
        yield
    finally:
        _habit.what = outer


def wait_for_event(event: torch.Event, timeout: float | None = None) -> bool:
    """Block until `event` is complete, at most `timeout` seconds; return whether it is.

    `torch.Event.synchronize` may keep a core busy (torch accepts and ignores
    `blocking=True`, `torch/_torch_docs.py` of 2.13), cannot time out, and was
    seen never to return on one vendor's stack.
    """
    if event.query():
        return True
    start = time.perf_counter()
    likely, spares = _habit.window(), _habit.spares
    waited = 0.0
    while True:
        sparing = spares is not None and spares()
        if sparing or waited > _SPIN_S:
            pause = _sparing_pause(waited, likely) if sparing else _pause(waited, likely)
            time.sleep(pause if timeout is None else min(pause, max(0.0, timeout - waited)))
        complete = event.query()
        waited = time.perf_counter() - start
        if complete:
            _habit.waits.append(waited)
            return True
        if timeout is not None and waited >= timeout:
            return False


def spare_others(while_busy: Callable[[], bool] = lambda: True) -> None:
    """Let the calling thread ask seldom from now on, whenever `while_busy()` is true.

    For threads of our own that wait beside a thread that launches work: it is worth more
    than hearing of an output a little earlier (1 % of the wait once waits are alike, 5 % at first).
    """
    _habit.spares = while_busy


def use_exact_pauses() -> None:
    """Let the calling thread sleep as short as it asks for, where the system can (Linux).

    For threads of our own: Linux lets others sleep 50 us longer, to wake several at
    once (`prctl(2)`, PR_SET_TIMERSLACK). Does not block; nothing happens elsewhere.
    """
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError):  # a C library without it
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS), 0, 0, 0)


def _pause(waited: float, likely: tuple[float, float]) -> float:
    """Return how long to sleep before asking again, in seconds."""
    begins, ends = likely
    if begins <= waited < ends:
        return max(_SHORTEST_PAUSE_S, waited * _NEAR_SHARE)
    pause = min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, waited * _PAUSE_SHARE))
    if waited < begins:
        pause = min(pause, max(_SHORTEST_PAUSE_S, begins - waited))
    return pause


def _sparing_pause(waited: float, likely: tuple[float, float]) -> float:
    """As `_pause`, for a thread that spares others."""
    begins, ends = likely
    if waited < begins < ends:
        return max(_SPARING_PAUSE_S, begins / _BEFORE * _SPARING_BEFORE - waited)
    share = _SPARING_SHARE if begins <= waited < ends else _SPARING_SHARE_AT_FIRST
    return min(_LONGEST_PAUSE_S, max(_SPARING_PAUSE_S, waited * share))
