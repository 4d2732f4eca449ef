"""Finds pairs of tasks that touch the same bytes and that nothing orders.

Each stream has a vector clock, and so has the host. The host's threads share
one clock: what orders them among each other (queues, locks, joins) cannot be
seen here, and a false alarm is worse than a miss that the schedules still find.
A task's span runs from its first to its last byte, so two streams that write
interleaved columns of one tensor are reported too. Reads and writes of pinned
memory by the host itself cannot be seen either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from omni_platforms.simulator.task import Clock, Queue, Span, StreamKey, Task

_KEPT = 64


class Access(NamedTuple):
    """One task's use of a span of memory."""

    span: Span
    writes: bool
    stream: StreamKey
    tick: int
    label: str


class Race(NamedTuple):
    """Two uses of the same bytes without an order between them."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"nothing orders {self.first} and {self.second}, which touch the same bytes"


def join(clock: Clock, other: Clock) -> None:
    """Let `clock` know all that `other` knows."""
    for key, tick in other.items():
        if clock.get(key, 0) < tick:
            clock[key] = tick


class RaceDetector:
    """Keeps the clocks, and the latest accesses of each block of memory."""

    def __init__(self, log_at: Callable[[int], list[Access] | None]) -> None:
        self._log_at = log_at
        self._host: Clock = {}
        self.races: set[Race] = set()

    def enqueued(self, task: Task) -> None:
        """`task` was put into its stream: it comes after all that the host has waited for."""
        queue = task.queue
        join(queue.clock, self._host)
        if task.waits_for is not None:
            join(queue.clock, task.waits_for.clock)
        queue.clock[queue.key] = queue.clock.get(queue.key, 0) + 1
        task.clock = dict(queue.clock)
        for span in task.reads:
            self.touched(queue, task.label, span, writes=False)
        for span in task.writes:
            self.touched(queue, task.label, span, writes=True)

    def host_saw(self, task: Task) -> None:
        """The host knows that `task` is done."""
        join(self._host, task.clock)

    def touched(self, queue: Queue, label: str, span: Span, *, writes: bool) -> None:
        """Note a use of `span` on `queue` now, and report the uses that race with it."""
        log = self._log_at(span.low)
        if log is None:
            return
        new = Access(span, writes, queue.key, queue.clock.get(queue.key, 0), label)
        kept = []
        for old in log:
            ordered = old.stream == queue.key or queue.clock.get(old.stream, 0) >= old.tick
            if not ordered and (writes or old.writes) and _overlap(old.span, span):
                self.races.add(Race(_where(old), _where(new)))
            if not (writes and ordered and _covers(span, old.span)):
                kept.append(old)
        log[:] = [*kept[1 - _KEPT :], new]


def _overlap(one: Span, other: Span) -> bool:
    return one.low < other.high and other.low < one.high


def _covers(outer: Span, inner: Span) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high


def _where(access: Access) -> str:
    return f"{access.label} on stream {access.stream[0]}.{access.stream[1]}"
