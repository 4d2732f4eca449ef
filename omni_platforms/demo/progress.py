"""The progress bar on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Stages:
    """Shows how far each stage has come."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Ticker]:
        """Show a bar of `total` steps while inside; yield what moves it on."""
        task = self._progress.add_task(title, total=total)
        yield Ticker(self._progress, task)
        self._progress.update(task, completed=total)


class Ticker:
    """Moves one bar on, one step a call."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def __call__(self) -> None:
        """Move on by one step. Any thread; does not block."""
        self._progress.update(self._task, advance=1)


@contextmanager
def stages_on_stderr() -> Iterator[Stages]:
    """Show progress on standard error while inside."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as progress:
        yield Stages(progress)
