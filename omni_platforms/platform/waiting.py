"""Waiting for an event on the host by asking, with pauses that grow."""

from __future__ import annotations

import time

import torch

# The first pauses are short, later ones grow with the time already waited, so
# that the wake-up is at most about 2 % late and 1 ms at worst.
_SHORTEST_PAUSE_S = 20e-6
# A pause of 20 us takes about 75 us on Linux, so a wait starts by asking at once
# and again: a few kilobytes arrive within this time.
_SPIN_S = 50e-6
_LONGEST_PAUSE_S = 1e-3
_PAUSE_SHARE = 0.02


def wait_for_event(event: torch.Event, timeout: float | None = None) -> bool:
    """Block until `event` is complete, at most `timeout` seconds; return whether it is.

    `torch.Event.synchronize` may keep a core busy (torch accepts and ignores
    `blocking=True`, `torch/_torch_docs.py` of 2.13), cannot time out, and was
    seen never to return on one vendor's stack.
    """
    if event.query():
        return True
    start = time.perf_counter()
    while not event.query():
        waited = time.perf_counter() - start
        if timeout is not None and waited >= timeout:
            return False
        if waited > _SPIN_S:
            time.sleep(_pause(waited, timeout))
    return True


def _pause(waited: float, timeout: float | None) -> float:
    """Return how long to sleep before asking again, in seconds."""
    pause = min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, waited * _PAUSE_SHARE))
    return pause if timeout is None else min(pause, max(0.0, timeout - waited))
