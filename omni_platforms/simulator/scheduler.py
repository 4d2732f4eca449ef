"""Decides when each task runs. Nothing runs by itself.

A task runs because the policy lets it run after an enqueue, or because a wait
of the host or of another stream demands it; then exactly those tasks run that
must come before it. The order is the same each time, whatever the machine
does, as long as the program enqueues the same.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NoReturn

from omni_platforms.errors import SimulatedFaultError
from omni_platforms.simulator.call_site import call_site
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.graphs.captures import Captures
from omni_platforms.simulator.isolation import isolated
from omni_platforms.simulator.policy import Policy
from omni_platforms.simulator.races import RaceDetector
from omni_platforms.simulator.sync_debug import SyncDebug
from omni_platforms.simulator.task import NEVER, Queue, Span, StreamKey, Task
from omni_platforms.simulator.timeline import Timeline


class Scheduler:
    """The streams, and the tasks that wait in them. Any thread may call any method."""

    def __init__(self, gate: Gate, hang: Callable[[str], NoReturn]) -> None:
        self._gate = gate
        self._hang = hang
        self.sync_debug = SyncDebug()
        self.captures = Captures()
        self._may_block = True
        self.start(Policy(), None)

    def start(self, policy: Policy, detector: RaceDetector | None) -> None:
        """Forget all streams, tasks, faults and counts, and follow `policy` from now on."""
        self.policy = policy
        self.detector = detector
        self.timeline = Timeline()
        self.host_waits: Counter[int] = Counter()
        self.enqueued: Counter[tuple[StreamKey, str]] = Counter()
        """How many tasks were enqueued in this run, by stream and by label without its number."""
        self.ticks = 0
        self.now_running: Task | None = None
        self._queues: dict[StreamKey, Queue] = {}
        self._made: Counter[int] = Counter()
        self._submitted = 0
        self._fault: tuple[Task, Exception] | None = None

    # Streams ------------------------------------------------------------------

    def queue(self, key: StreamKey) -> Queue:
        """Return the stream `key`, made on first use."""
        with self._gate:
            if key not in self._queues:
                self._queues[key] = Queue(key)
            return self._queues[key]

    def new_queue(self, device: int, priority: int) -> Queue:
        """Return a new stream. Numbers count from 1 on each device, in order of creation."""
        with self._gate:
            self._made[device] += 1
            while (device, self._made[device]) in self._queues:  # a stream of an earlier run
                self._made[device] += 1
            queue = self.queue((device, self._made[device]))
            queue.priority = priority
            return queue

    def hidden_queue(self, device: int, name: str) -> Queue:
        """Return the stream `name`, of which programs do not know; made on first use.

        Such streams have negative numbers.
        """
        with self._gate:
            hidden = [queue for queue in self.queues(device) if queue.key[1] < 0]
            for queue in hidden:
                if queue.name == name:
                    return queue
            key = (device, -1 - len(hidden))
            self._queues[key] = Queue(key, name=name)
            return self._queues[key]

    def queues(self, device: int | None = None) -> list[Queue]:
        """Return the streams of `device`, or of all devices, in order of creation."""
        with self._gate:
            return [q for q in self._queues.values() if device is None or q.key[0] == device]

    def waiting_queues(self) -> list[Queue]:
        """Return the streams whose first task could run now."""
        return [q for q in self._queues.values() if q.tasks and not q.running]

    # Work ---------------------------------------------------------------------

    def submit(
        self,
        queue: Queue,
        label: str,
        run: Callable[[], None] | None,
        *,
        reads: tuple[Span, ...] = (),
        writes: tuple[Span, ...] = (),
        waits_for: Task | None = None,
        ready: Callable[[], bool] | None = None,
    ) -> Task:
        """Put a task at the end of `queue` and return it; it may have run already.

        It runs after `waits_for`, a task of another stream. On a stream that
        captures a graph it is only written down. While `ready` answers False
        only a wait of the host runs it, and blocks in it.
        """
        with self._gate:
            capture = self.captures.of(queue, waits_for)
            task = Task(self._submitted, queue, label, run, waits_for, reads, writes)
            task.site = call_site()
            task.ready = ready
            self._submitted += 1
            self.enqueued[queue.key, label.rstrip("0123456789 ")] += 1
            if capture is not None:
                capture.record(task)
                self.timeline.host(f"captures {task}")
                return task
            self.timeline.enqueued(task)
            if self.detector is not None:
                self.detector.enqueued(task)
            queue.tasks.append(task)
            queue.last = task
            with self._without_blocking():
                self.policy.after_submit(self, queue)
            return task

    def fence(self, queue: Queue, other: Queue) -> None:
        """Make `queue` wait for all that is in `other` now."""
        if other.last is not None and queue is not other:
            self.submit(queue, f"wait for {other}", None, waits_for=other.last)

    def drain(self, queue: Queue, upto: Task | None = None) -> None:
        """Run `queue` up to the task `upto` (all of it: `None`), and what that waits for."""
        with self._gate, isolated():
            self._drain(queue, upto)

    def _drain(self, queue: Queue, upto: Task | None) -> None:
        # A stack, not recursion: streams may wait for each other thousands of times.
        stack = [(queue, upto)]
        while stack:
            queue, upto = stack[-1]
            if (upto is not None and upto.done) or not queue.tasks or queue.running:
                stack.pop()
                continue
            first = queue.tasks[0]
            if first.waits_for is NEVER:
                return
            if first.waits_for is not None and not first.waits_for.done:
                stack.append((first.waits_for.queue, first.waits_for))
                continue
            if not self._may_block and first.ready is not None and not first.ready():
                return
            queue.tasks.popleft()
            self._run(first)

    def push(self, task: Task) -> None:
        """Run `task` and what must come before it, as far as other processes let it. No wait."""
        with self._gate, self._without_blocking():
            self.drain(task.queue, task)

    @contextlib.contextmanager
    def _without_blocking(self) -> Iterator[None]:
        """Leave tasks alone that another process has not done its part of."""
        before, self._may_block = self._may_block, False
        try:
            yield
        finally:
            self._may_block = before

    def _run(self, task: Task) -> None:
        task.queue.running = True
        self.now_running = task
        self.ticks += 1
        self.timeline.ran(task)
        try:
            if task.run is not None:
                task.run()
        except Exception as error:  # noqa: BLE001 - kept, and raised at the next wait of the host
            self.timeline.failed(task, error)
            self._fault = self._fault or (task, error)
        finally:
            task.queue.running = False
            task.done = True
            task.run = None
            task.waits_for = None

    # Waits of the host --------------------------------------------------------

    def host_wait(self, task: Task | None, what: str, *, asked: bool = False) -> None:
        """Block the host until `task` is done (no task: only count the wait).

        `asked` says that the program asked for this very wait, and not for data.
        Raises `SimulatedFaultError` for an operation that failed meanwhile.
        """
        if not asked:
            self.sync_debug.check(what)
        with self._gate:
            self.captures.check_host_call(f"a wait ({what})", task.capture if task else None)
            self.host_waits[threading.get_ident()] += 1
            self._wait(task, what)
        self._check_arrived(task)

    def host_wait_for_all(self, queues: list[Queue], what: str) -> None:
        """Block the host until all that `queues` hold is done; one wait, as the host sees it."""
        with self._gate:
            self.captures.check_host_call(f"a wait ({what})")
            self.host_waits[threading.get_ident()] += 1
            for queue in queues:
                self._wait(queue.last, what)
            self.raise_fault()
        for queue in queues:
            self._check_arrived(queue.last)

    def _wait(self, task: Task | None, what: str) -> None:
        self.timeline.host(f"waits ({what})" + (f" for {task}" if task else ""))
        if task is not None:
            self.drain(task.queue, task)
            self._host_saw(task)
        self.raise_fault()

    def _check_arrived(self, task: Task | None) -> None:
        """Let the wait that has just ended hang, where `task` will never run.

        Captured tasks are never enqueued, and nothing waits for them.
        """
        if task is not None and not task.done and task.capture is None:
            self._hang(str(task))

    def poll(self, task: Task | None) -> bool:
        """Whether `task` is done, for a query of the host, which does not block.

        It answers False a few times and then makes the work progress, so that a
        loop that asks comes to an end under each schedule.
        """
        if task is None:
            return True
        with self._gate:
            self.captures.check_host_call(f"a query ({task})", task.capture)
            queue = task.queue
            if not task.done:
                queue.polls += 1
                if queue.polls <= self.policy.polls:
                    return False
                queue.polls = 0
                self.timeline.host(f"asks again for {task}")
                self.push(task)
                if not task.done:
                    return False
            self._host_saw(task)
            self.raise_fault()
            return task.done

    def _host_saw(self, task: Task) -> None:
        if self.detector is not None and task.done:
            self.detector.host_saw(task)

    # Faults -------------------------------------------------------------------

    def unfinished(self) -> list[Task]:
        """Return the tasks that have not run, stream by stream."""
        with self._gate:
            return [task for queue in self._queues.values() for task in queue.tasks]

    def raise_fault(self) -> None:
        """Raise the first failure of a task that no wait has reported yet, if there is one."""
        if self._fault is None:
            return
        (task, error), self._fault = self._fault, None
        raise SimulatedFaultError(
            f"{task} failed on the simulated device: {type(error).__name__}: {error}. "
            "It was enqueued before this wait; the results of later work on its stream are "
            "undefined."
        ) from error

    def finish(self) -> None:
        """Run all that is queued, give up what hangs and forget what failed: the end of a run."""
        with self._gate:
            for queue in self.queues():
                self.drain(queue)
                for task in queue.tasks:  # so that nobody asks for them for ever
                    task.done = True
            self._fault = None
