"""A record of what was enqueued, run and waited for, to be read by people."""

from __future__ import annotations

import threading
from collections import deque

from omni_platforms.simulator.task import Task

_KEPT = 2000


class Timeline:
    """The latest events of a run, in the order in which they happened."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._dropped = 0

    def enqueued(self, task: Task) -> None:
        """Note that the calling thread enqueued `task`."""
        after = f", which waits for #{task.waits_for.number}" if task.waits_for else ""
        self._add(f"host    {_thread()} enqueues {task}{after}")

    def ran(self, task: Task) -> None:
        """Note that `task` runs."""
        self._add(f"device  runs {task}")

    def failed(self, task: Task, error: Exception) -> None:
        """Note that `task` raised `error`."""
        self._add(f"device  FAULT in {task}: {error}")

    def host(self, what: str) -> None:
        """Note something that the calling thread does, such as a wait."""
        self._add(f"host    {_thread()} {what}")

    def __str__(self) -> str:
        lines = [f"{self._dropped + place:5d}  {line}" for place, line in enumerate(self._lines)]
        if self._dropped:
            lines.insert(0, f"  ...  {self._dropped} earlier lines were dropped")
        return "\n".join(lines)

    def _add(self, line: str) -> None:
        if len(self._lines) == _KEPT:
            self._dropped += 1
        self._lines.append(line)


def _thread() -> str:
    return threading.current_thread().name
