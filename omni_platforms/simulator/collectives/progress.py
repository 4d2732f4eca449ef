"""Lets collectives leave this process without anybody here waiting for them, as a device would.

Another process may wait for this one's part while this one waits for something
else of the other, such as a message. Under a lazy schedule nobody here would
ever demand it.
"""

from __future__ import annotations

import queue
import threading
import time

from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.task import Task

DELAY_S = 0.05
"""How long a task may stay undone before it is run; longer than a scenario's next lines take."""


class Progress:
    """A background thread that runs tasks which stayed undone for `DELAY_S`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._tasks: queue.SimpleQueue[tuple[Task, float]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def later(self, task: Task) -> None:
        """Run `task`, and what must come before it, if nobody demands it. Does not block."""
        if task.done or task.capture is not None:
            return
        self._tasks.put((task, time.monotonic() + DELAY_S))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="simulated-collectives", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            task, due = self._tasks.get()
            time.sleep(max(0.0, due - time.monotonic()))
            self._scheduler.push(task)
