"""A record of what was enqueued, run and waited for, to be read by people."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from omni_platforms.simulator.task import Task

_KEPT = 2000
_AROUND = 3


class Line(NamedTuple):
    """One thing that happened: who did what, with which task (-1: none), asked for where."""

    who: str
    what: str
    task: int = -1
    site: str = ""

    @property
    def short_site(self) -> str:
        """The file without its folder, and the line."""
        return os.path.basename(self.site.partition(" in ")[0])

    def text(self, number: int, width: int, marked: bool) -> str:
        """Return the line for a person, with a `>` where it is `marked`."""
        site = f"  [{self.short_site}]" if self.site else ""
        return f"{'>' if marked else ' '}{number:5d}  {self.who:<{width}}  {self.what}{site}"


class Timeline:
    """The latest events of a run, in the order in which they happened."""

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=_KEPT)
        self._dropped = 0

    def enqueued(self, task: Task) -> None:
        """Note that the calling thread enqueued `task`."""
        after = f", which waits for #{task.waits_for.number}" if task.waits_for else ""
        self._add(Line(_thread(), f"enqueues {task}{after}", task.number, task.site))

    def ran(self, task: Task) -> None:
        """Note that `task` runs."""
        last = self._lines[-1] if self._lines else None
        if last is not None and last.task == task.number and last.site:  # it was enqueued just now
            self._lines[-1] = last._replace(what=f"{last.what}; it runs at once")
        else:
            self._add(Line(str(task.queue), f"runs #{task.number} {task.label}", task.number))

    def failed(self, task: Task, error: Exception) -> None:
        """Note that `task` raised `error`."""
        self._add(Line(str(task.queue), f"FAULT in #{task.number}: {error}", task.number))

    def host(self, what: str) -> None:
        """Note something that the calling thread does, such as a wait."""
        self._add(Line(_thread(), what))

    def __str__(self) -> str:
        return self.text()

    def text(self, marked: Collection[int] = ()) -> str:
        """Return all lines that were kept; those of the tasks `marked` begin with `>`."""
        return "\n".join(self._render(range(len(self._lines)), marked))

    def excerpt(self, marked: Collection[int], most: int = 40) -> str:
        """Return the lines around the tasks `marked`, and the end; at most about `most`."""
        lines = list(self._lines)
        places = [at for at, line in enumerate(lines) if line.task in marked]
        wanted = set(range(max(0, len(lines) - 2 * _AROUND), len(lines)))
        for place in places or [len(lines) - 1]:
            wanted.update(range(max(0, place - _AROUND), min(len(lines), place + _AROUND + 1)))
        if not places or len(lines) <= most:
            wanted = set(range(max(0, len(lines) - most), len(lines)))
        return "\n".join(self._render(sorted(wanted)[-most:], marked))

    def _render(self, places: Iterable[int], marked: Collection[int]) -> Iterator[str]:
        """Yield the lines at `places`, with a note in the place of those between."""
        lines = list(self._lines)
        width = max((len(line.who) for line in lines), default=0)
        expected = -self._dropped
        for place in places:
            if place > expected:
                yield f"    ...  {place - expected} lines left out"
            line = lines[place]
            yield line.text(self._dropped + place, width, line.task in marked and line.task >= 0)
            expected = place + 1

    def _add(self, line: Line) -> None:
        if len(self._lines) == _KEPT:
            self._dropped += 1
        self._lines.append(line)


def _thread() -> str:
    return threading.current_thread().name
