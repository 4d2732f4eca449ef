"""One graph capture: what is enqueued on its streams is written down instead of run.

The rules are those of CUDA. Which calls they refuse, and which of those end the
capture, was tried on an NVIDIA H200 (torch 2.11.0, CUDA 13.0).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from omni_platforms.errors import SimulatedCaptureError
from omni_platforms.simulator.task import Queue, Task

if TYPE_CHECKING:
    from omni_platforms.simulator.graphs.pool import GraphPool

MODES = ("global", "thread_local", "relaxed")
"""Whose unsafe calls a capture refuses: all threads', its own thread's, nobody's."""


class Capture:
    """What is captured so far, and the streams that take part. Used with the gate held."""

    def __init__(self, origin: Queue, pool: GraphPool, mode: str) -> None:
        self.origin = origin
        self.pool = pool
        self.mode = mode
        self.thread = threading.get_ident()
        self.tasks: list[Task] = []
        self.broken = ""
        """What ended the capture early; empty while it is whole."""
        self.over = False
        self.before_replay: list[Callable[[], None]] = []
        """What the host does anew at each replay, such as drawing random seeds."""
        self.after_end: list[Callable[[], None]] = []
        """What must not happen on a stream that captures, and waits for the end."""
        self._last_before: dict[Queue, Task | None] = {}
        self.join(origin)

    def __str__(self) -> str:
        return f"the graph capture on {self.origin}"

    @property
    def streams(self) -> list[Queue]:
        """The streams that take part, the capturing one first."""
        return list(self._last_before)

    def join(self, queue: Queue) -> None:
        """Let `queue` take part from now on."""
        self._last_before[queue] = queue.last
        queue.capture = self

    def record(self, task: Task) -> None:
        """Write `task` down. Raises `SimulatedCaptureError` where it cannot be part of a graph."""
        if self.broken:
            raise SimulatedCaptureError(
                f"{self} was broken by this: {self.broken}. End it, and capture again without "
                "that call."
            )
        source = task.waits_for
        if source is not None and source.capture is not self:
            self.break_off(f"{task} waits for work that was not captured ({source})")
        task.capture = self
        task.queue.last = task
        self.tasks.append(task)

    def break_off(self, why: str) -> None:
        """End the capture early and raise `SimulatedCaptureError`."""
        self.broken = self.broken or why
        raise SimulatedCaptureError(
            f"{why}: refused, and {self} is broken by it. Do it before or after the capture"
            + (", or keep other threads still while it lasts." if self.mode == "global" else ".")
        )

    def forbids_here(self) -> bool:
        """Whether an unsafe call of the calling thread is refused."""
        if self.mode == "thread_local":
            return threading.get_ident() == self.thread
        return self.mode == "global"

    def end(self) -> None:
        """Release the streams and carry out what was put off."""
        self.over = True
        for queue, last in self._last_before.items():
            queue.capture, queue.last = None, last
        for call in self.after_end:
            call()

    def unjoined(self) -> Queue | None:
        """Return a stream whose captured work nothing on the capturing stream waits for."""
        joined = _what_precedes(self.tasks, self.origin)
        for task in reversed(self.tasks):
            if (task.reads or task.writes) and task not in joined:
                return task.queue
        return None


def _what_precedes(tasks: list[Task], origin: Queue) -> set[Task]:
    """Return the tasks that come before the end of `origin`: on it, or waited for by it."""
    before: dict[Task, Task] = {}
    last: dict[Queue, Task] = {}
    for task in tasks:
        if task.queue in last:
            before[task] = last[task.queue]
        last[task.queue] = task
    found: set[Task] = set()
    pending = [last[origin]] if origin in last else []
    while pending:
        task = pending.pop()
        if task in found:
            continue
        found.add(task)
        pending += [x for x in (before.get(task), task.waits_for) if x is not None]
    return found
