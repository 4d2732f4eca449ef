"""How a job's outputs leave the workers: one at a time, or behind the next forward."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omni_platforms.errors import JobError
from omni_platforms.platform.capability import Capability
from omni_platforms.platform.interface import OmniPlatform

MODES = ("auto", "sync", "async")
_NEEDED = (Capability.SIDE_STREAMS, Capability.DEVICE_EVENTS)
_MOST_SAVERS = 4
_AHEAD = 2


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
    asked_window: int | None = None

    @property
    def window(self) -> int:
        """Requests that may be at one worker."""
        if self.taken == "sync":
            return 1
        return _AHEAD if self.asked_window is None else self.asked_window

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


def choose_mode(
    asked: str,
    platform: OmniPlatform,
    workers: int,
    window: int | None = None,
    elsewhere: str | None = None,
) -> Mode:
    """Return the mode for one of `MODES` on a platform. Does not block.

    `elsewhere` is the name of the platform of workers on other hosts, of which nothing is known
    here where it is another one: "auto" takes "async" for it.

    A `window` that was asked for is for "async", and makes "auto" take it. Raises `JobError`
    for one of more than 1 with "sync".
    """
    if asked == "sync" and window not in (None, 1):
        raise JobError(
            f"mode sync has one request at a worker, not {window}: leave the window out, or take "
            "mode async"
        )
    if asked != "auto":
        return Mode(asked, asked, "as asked", workers, window)
    if window is not None:
        return Mode(asked, "async", f"auto: a window of {window} was asked for", workers, window)
    if elsewhere not in (None, platform.name):
        return Mode(asked, "async", f"auto: {elsewhere} is on other hosts", workers)
    lacks = [need.value.replace("_", " ") for need in _NEEDED if need not in platform.capabilities]
    if lacks:
        reason = f"auto: {platform.name} has no {' and no '.join(lacks)}"
        return Mode(asked, "sync", reason, workers)
    return Mode(asked, "async", f"auto: {platform.name} has side streams and events", workers)
