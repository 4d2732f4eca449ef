"""Events: marks in a stream that the host and other streams can wait for."""

from __future__ import annotations

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.task import Queue, Task

_MS_PER_TASK = 0.001


class Mark:
    """One record of an event: its task, and the device's time when it ran, in tasks."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self.tick: int | None = None


class EventTable:
    """The events of the process, by number. A number of 0 is an event never recorded."""

    def __init__(self, gate: Gate, scheduler: Scheduler) -> None:
        self._gate = gate
        self._scheduler = scheduler
        self._marks: dict[int, Mark] = {}
        self._made = 0  # never reused: an old event may be destroyed in a later run

    def start_run(self) -> None:
        """Forget what the records of earlier runs came after; those runs are over."""
        for mark in list(self._marks.values()):
            if mark.task is not None:
                mark.task.clock = {}

    def record(self, number: int, queue: Queue) -> int:
        """Record event `number` (0: a new one) at the end of `queue`; return its number."""
        with self._gate:
            if not number:
                self._made += 1
                number = self._made
            mark = Mark()

            def note_time() -> None:
                mark.tick = self._scheduler.ticks

            mark.task = self._scheduler.submit(queue, f"record event {number}", note_time)
            self._marks[number] = mark
            return number

    def block(self, number: int, queue: Queue) -> None:
        """Make `queue` wait for the latest record of the event; later records do not matter."""
        task = self.task(number)
        if task is not None:
            on_it = task.queue is queue and queue.capture is None
            other = None if on_it else task
            self._scheduler.submit(queue, f"wait for event {number}", None, waits_for=other)

    def query(self, number: int) -> bool:
        """Whether the work before the latest record is done. Does not block."""
        return self._scheduler.poll(self.task(number))

    def synchronize(self, number: int) -> None:
        """Block the host until the work before the latest record is done."""
        self._scheduler.host_wait(self.task(number), f"event {number}", asked=True)

    def destroy(self, number: int) -> None:
        """Forget the event; waits for it that are queued stay."""
        self._marks.pop(number, None)

    def elapsed_ms(self, start: int, end: int) -> float:
        """Return the device's time between two events: a microsecond for each task run."""
        first, last = self._marks[start].tick, self._marks[end].tick
        if first is None or last is None:
            raise SimulatorStateError(
                "elapsed_time needs two events that are complete. Synchronize the later one first."
            )
        return (last - first) * _MS_PER_TASK

    def task(self, number: int) -> Task | None:
        """Return the latest record of the event, or `None` where there is none."""
        return self._marks[number].task if number else None
