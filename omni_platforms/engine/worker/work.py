"""The requests and outputs that a worker has: where each is, and who still wants it.

`WorkTable` does no I/O and never waits. The reader adds and drops, the main
thread and the output thread take what is there from phase to phase.
"""

from __future__ import annotations

import enum
import threading
import time
from dataclasses import dataclass, field
from typing import Any


class Phase(str, enum.Enum):
    """Where an output is."""

    QUEUE = "queue"
    """The request was not begun."""
    COMPUTE = "compute"
    ROOM = "room"
    """It waits for room in shared memory."""
    GATE = "gate"
    """The device has not computed it."""
    COPY = "copy"
    """The device has not copied it."""
    SEND = "send"


@dataclass
class Work:
    """One output, and what led to it. Times in seconds of `time.monotonic()`."""

    id: str
    phase: Phase = Phase.QUEUE
    dropped: bool = False
    previews: int = 0
    """How many more previews may be on their way."""
    stamps: dict[str, float] = field(default_factory=dict)


class WorkTable:
    """All outputs that were asked for and not yet sent, dropped or failed. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, Work] = {}

    def add(self, name: str, previews: int = 0) -> None:
        """Note an output that was asked for."""
        work = Work(name, previews=previews, stamps={"queue": time.monotonic()})
        with self._lock:
            self._all[name] = work

    def enter(self, name: str, phase: Phase) -> bool:
        """Move an output on; return whether it is still wanted.

        One that was dropped while it was queued is not here any more.
        """
        now = time.monotonic()
        with self._lock:
            work = self._all.get(name)
            if work is None:
                return False
            work.phase = phase
            work.stamps[phase.value] = now
            return not work.dropped

    def wanted(self, name: str) -> bool:
        """Whether an output is under way and nobody dropped it."""
        with self._lock:
            work = self._all.get(name)
            return work is not None and not work.dropped

    def drop(self, name: str) -> bool:
        """Give an output up; return whether nothing works on it, so that this is all.

        Otherwise who has it acknowledges when it is done (`finish`).
        """
        with self._lock:
            work = self._all.get(name)
            if work is not None and work.phase is not Phase.QUEUE:
                work.dropped = True
                return False
            self._all.pop(name, None)
            return True

    def finish(self, name: str) -> bool:
        """Forget an output that is sent, failed or given up; return whether it was dropped."""
        with self._lock:
            work = self._all.pop(name, None)
            return work is not None and work.dropped

    def take_preview(self, name: str) -> bool:
        """Take one of the previews that may be on their way; return whether there was one."""
        with self._lock:
            work = self._all.get(name)
            if work is None or work.dropped or work.previews < 1:
                return False
            work.previews -= 1
            return True

    def give_preview(self, name: str) -> None:
        """Allow one more preview. A request that has ended has none."""
        with self._lock:
            work = self._all.get(name)
            if work is not None:
                work.previews += 1

    def stamps(self, name: str) -> dict[str, float]:
        """Return when an output entered each phase."""
        with self._lock:
            work = self._all.get(name)
            return {} if work is None else dict(work.stamps)

    def describe(self) -> list[dict[str, Any]]:
        """Return a row for each output, oldest first: id, phase, seconds in it, dropped."""
        now = time.monotonic()
        with self._lock:
            return [
                {
                    "id": work.id,
                    "phase": work.phase.value,
                    "seconds": now - work.stamps[work.phase.value],
                    "dropped": work.dropped,
                }
                for work in self._all.values()
            ]
