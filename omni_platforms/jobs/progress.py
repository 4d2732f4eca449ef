"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from omni_platforms.jobs.tally import Tally

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_EVERY_S = 2.0


class Show(Protocol):
    """What a job shows while it runs."""

    def begin(self) -> None:
        """The workers are up: the clock starts."""

    def note(self, text: str) -> None:
        """Show one line of text."""

    def moved(self, tally: Tally) -> None:
        """Show how far it has come."""


class Lines:
    """Plain lines, at most one each two seconds, and one for the end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self.begin()

    def begin(self) -> None:
        """Start the clock."""
        self._start = self._shown = time.monotonic()

    def note(self, text: str) -> None:
        """Print one line."""
        print(f"omni-platforms: {text}", file=sys.stderr, flush=True)

    def moved(self, tally: Tally) -> None:
        """Print a line if the last one is old, or it is the last."""
        now, done = time.monotonic(), tally.ok + tally.failed
        if done < self._total and now - self._shown < _EVERY_S:
            return
        self._shown = now
        rate = done / max(now - self._start, 1e-9)
        failed = f", {tally.failed} failed" if tally.failed else ""
        self.note(f"{done} of {self._total} requests{failed}, {rate:.2f} a second")


class Bar:
    """A bar of rich, with what workers print above it."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("requests", total=total, failed="", start=False)

    def begin(self) -> None:
        """Start the clock."""
        self._progress.start_task(self._task)

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def moved(self, tally: Tally) -> None:
        """Move the bar."""
        failed = f"{tally.failed} failed" if tally.failed else ""
        self._progress.update(self._task, completed=tally.ok + tally.failed, failed=failed)


@contextmanager
def shown(total: int) -> Iterator[Show]:
    """Show the progress of `total` requests on standard error while inside."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(total)
        return
    with _bar(console) as progress:
        yield Bar(progress, total)


def _bar(console: Console) -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[failed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        redirect_stdout=False,
    )
