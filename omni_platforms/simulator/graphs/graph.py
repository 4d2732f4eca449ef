"""A captured graph: the tasks of a capture, enqueued again at each replay."""

from __future__ import annotations

from pathlib import Path

from omni_platforms.errors import SimulatedCaptureError
from omni_platforms.simulator.graphs.capture import Capture
from omni_platforms.simulator.graphs.pool import GraphPool
from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.task import Queue, Task


class RecordedGraph:
    """The tasks of one finished capture. Used with the gate held."""

    def __init__(self, number: int, capture: Capture) -> None:
        self.number = number
        self.pool: GraphPool = capture.pool
        self._capture = capture
        self._branches: dict[Queue, Queue] = {}
        self._run: object = None

    def replay(self, scheduler: Scheduler, queue: Queue) -> None:
        """Enqueue the tasks on `queue`. Does not block.

        Work that was captured on other streams goes to streams of the graph's
        own, and waits for what it waited for: nothing else orders the branches.
        """
        for call in self._capture.before_replay:
            call()
        enqueued: dict[Task, Task] = {}
        for task in self._capture.tasks:
            source = task.waits_for
            enqueued[task] = scheduler.submit(
                self._stream(scheduler, task.queue, queue),
                f"{task.label} (graph {self.number})",
                task.run,
                reads=task.reads,
                writes=task.writes,
                waits_for=None if source is None else enqueued[source],
                ready=task.ready,
            )

    def _stream(self, scheduler: Scheduler, captured: Queue, queue: Queue) -> Queue:
        if captured is self._capture.origin:
            return queue
        if self._run is not scheduler.timeline:  # streams last as long as a run
            self._run, self._branches = scheduler.timeline, {}
        if captured not in self._branches:
            self._branches[captured] = scheduler.new_queue(captured.key[0], captured.priority)
        return self._branches[captured]

    def release(self) -> None:
        """Let go of what the tasks hold: pinned memory may be reused now."""
        for task in self._capture.tasks:
            task.done, task.run = True, None
        self._capture.tasks = []
        self._capture.before_replay = []

    def dump(self, path: str) -> None:
        """Write the graph as a DOT file."""
        lines = ["digraph {"]
        last: dict[Queue, Task] = {}
        for task in self._capture.tasks:
            lines.append(f'  {task.number} [label="{task}"];')
            for source in (last.get(task.queue), task.waits_for):
                if source is not None:
                    lines.append(f"  {source.number} -> {task.number};")
            last[task.queue] = task
        Path(path).write_text("\n".join([*lines, "}", ""]))


def finish(number: int, capture: Capture) -> RecordedGraph:
    """Make a graph of a capture that has ended. Raises `SimulatedCaptureError` for a broken one."""
    if capture.broken:
        raise SimulatedCaptureError(
            f"{capture} was broken by this: {capture.broken}. There is no graph; capture again "
            "without that call."
        )
    stream = capture.unjoined()
    if stream is not None:
        raise SimulatedCaptureError(
            f"{capture} ends, and nothing on {capture.origin} waits for the captured work on "
            f"{stream}. Record an event there and wait for it before the end."
        )
    return RecordedGraph(number, capture)
