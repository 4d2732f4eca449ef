"""How a job's outputs leave the workers: one at a time, or behind the next forward."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

MODES = ("auto", "sync", "async")
_NEEDED = (Capability.SIDE_STREAMS, Capability.DEVICE_EVENTS)
_MOST_SAVERS = 4


@dataclass(frozen=True)
class Mode:
    """A mode that was taken, and why.

    sync: a worker gets its next request when the output of the last one is saved; nothing
    overlaps. async: the next request is at the worker before it has ended the last, and copies,
    hand-over and saving go on behind it.
    """

    asked: str
    taken: str
    reason: str
    workers: int

    @property
    def window(self) -> int:
        """Requests that may be at one worker."""
        return 1 if self.taken == "sync" else 2

    @property
    def in_flight(self) -> int:
        """Requests that may be submitted and not saved: what bounds memory."""
        if self.taken == "sync":
            return self.workers
        return self.workers * (self.window + 1) + 2 * self.savers

    @property
    def savers(self) -> int:
        """Threads that save outputs."""
        return min(_MOST_SAVERS, os.cpu_count() or 1)

    def __str__(self) -> str:
        return f"mode {self.taken} ({self.reason})"


def choose_mode(asked: str, platform: OmniPlatform, workers: int) -> Mode:
    """Return the mode for one of `MODES` on a platform. Does not block."""
    if asked != "auto":
        return Mode(asked, asked, "as asked", workers)
    lacks = [need.value.replace("_", " ") for need in _NEEDED if need not in platform.capabilities]
    if lacks:
        reason = f"auto: {platform.name} has no {' and no '.join(lacks)}"
        return Mode(asked, "sync", reason, workers)
    return Mode(asked, "async", f"auto: {platform.name} has side streams and events", workers)
