"""Tasks and the streams that they wait in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from omni_platforms.simulator.graphs.capture import Capture

StreamKey = tuple[int, int]
"""A device and the number of a stream on it; 0 is the device's default stream."""

COPY_TO_HOST = "copy to host"
"""The label of copies to the host, which the host must wait for."""

Clock = dict[StreamKey, int]
"""How many tasks of each stream are known to be finished: a vector clock."""


class Span(NamedTuple):
    """A range of addresses, in bytes; `high` is the first address after it."""

    low: int
    high: int


class Task:
    """One operation on a stream. It runs as a whole, when the scheduler says so."""

    __slots__ = (
        "capture",
        "clock",
        "done",
        "label",
        "number",
        "queue",
        "reads",
        "ready",
        "run",
        "site",
        "waits_for",
        "writes",
    )

    def __init__(
        self,
        number: int,
        queue: Queue,
        label: str,
        run: Callable[[], None] | None,
        waits_for: Task | None = None,
        reads: tuple[Span, ...] = (),
        writes: tuple[Span, ...] = (),
    ) -> None:
        self.number = number
        self.queue = queue
        self.label = label
        self.run = run
        self.waits_for = waits_for
        self.reads = reads
        self.writes = writes
        self.done = False
        self.clock: Clock = {}
        self.site = ""
        """The line that asked for it: `file:line in function`."""
        self.capture: Capture | None = None
        """The graph capture that the task was written down in, where it was not enqueued."""
        self.ready: Callable[[], bool] | None = None
        """For a task that another process must do its part of: whether it can run at once."""

    def __str__(self) -> str:
        return f"#{self.number} {self.label} on {self.queue}"


class Queue:
    """One stream: the tasks that wait in it, in the order in which they must run."""

    __slots__ = (
        "capture",
        "clock",
        "key",
        "last",
        "name",
        "polls",
        "priority",
        "running",
        "tasks",
    )

    def __init__(self, key: StreamKey, priority: int = 0, name: str = "") -> None:
        self.key = key
        self.name = name or f"stream {key[0]}.{key[1]}"
        self.priority = priority
        self.tasks: deque[Task] = deque()
        self.last: Task | None = None
        self.running = False
        self.polls = 0
        self.clock: Clock = {}
        self.capture: Capture | None = None
        """The graph capture that this stream takes part in now."""

    def __str__(self) -> str:
        return self.name


NEVER = Task(-1, Queue((-1, -1)), "a record that never comes", None)
"""A task that no stream holds: whatever waits for it waits for ever."""
