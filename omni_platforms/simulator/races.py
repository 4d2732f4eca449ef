"""Finds pairs of tasks that touch the same bytes and that nothing orders.

Each stream has a vector clock, and so has the host. The host's threads share
one clock: what orders them among each other (queues, locks, joins) cannot be
seen here, and a false alarm is worse than a miss that the schedules still find.
A task's span runs from its first to its last byte, so two streams that write
interleaved columns of one tensor are reported too. Reads of pinned memory by
the host itself cannot be seen; writes are, where they change what a copy to the
device reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from omni_platforms.simulator.call_site import call_site
from omni_platforms.simulator.task import Clock, Queue, Span, StreamKey, Task

_KEPT = 64

ALLOCATION = "allocation"
FREE = "free"


class Access(NamedTuple):
    """One task's use of a span of memory."""

    span: Span
    writes: bool
    stream: StreamKey
    tick: int
    label: str
    where: str
    site: str
    task: int

    def __str__(self) -> str:
        return f"{self.label} on {self.where}"


class Race(NamedTuple):
    """Two uses of the same bytes without an order between them."""

    first: str
    """What came first as the host enqueued it: an operation and its stream."""
    second: str
    first_site: str = ""
    """The line that asked for it: `file:line in function`."""
    second_site: str = ""
    remedy: str = ""
    """The edge that is missing, and how to add it."""

    def __str__(self) -> str:
        return (
            f"nothing orders {self.first}{_at(self.first_site)} and "
            f"{self.second}{_at(self.second_site)}, which touch the same bytes. {self.remedy}"
        )


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
        self.races: dict[Race, tuple[int, int]] = {}
        """Each race, and the numbers of its tasks (-1: no task) where it was first seen."""
        self._freed: set[tuple[int, StreamKey]] = set()

    def enqueued(self, task: Task) -> None:
        """`task` was put into its stream: it comes after all that the host has waited for."""
        queue = task.queue
        join(queue.clock, self._host)
        if task.waits_for is not None:
            join(queue.clock, task.waits_for.clock)
        queue.clock[queue.key] = queue.clock.get(queue.key, 0) + 1
        task.clock = dict(queue.clock)
        for span in task.reads:
            self._touched(queue, task.label, span, False, task.site, task.number)
        for span in task.writes:
            self._touched(queue, task.label, span, True, task.site, task.number)

    def host_saw(self, task: Task) -> None:
        """The host knows that `task` is done."""
        join(self._host, task.clock)

    def allocated(self, queue: Queue, span: Span) -> None:
        """The memory in `span` was given to a new owner, for use on `queue`."""
        self._touched(queue, ALLOCATION, span, True, call_site(), -1)

    def host_overwrote(self, task: Task) -> None:
        """The host changed pinned memory that `task`, not run yet, was to read."""
        remedy = (
            f"The host must wait for {task.queue} before it refills that memory: synchronize an "
            "event recorded after the copy."
        )
        race = Race(f"{task.label} on {task.queue}", "a write of the host", task.site, "", remedy)
        self.races.setdefault(race, (task.number, -1))

    def _touched(
        self, queue: Queue, label: str, span: Span, writes: bool, site: str, task: int
    ) -> None:
        """Note a use of `span` on `queue` now, and report the uses that race with it."""
        log = self._log_at(span.low)
        if log is None:
            return
        tick = queue.clock.get(queue.key, 0)
        new = Access(span, writes, queue.key, tick, label, str(queue), site, task)
        kept = []
        for old in log:
            ordered = old.stream == queue.key or queue.clock.get(old.stream, 0) >= old.tick
            if not ordered and (writes or old.writes) and _overlap(old.span, span):
                self._report(old, new)
            if not (writes and ordered and _covers(span, old.span)):
                kept.append(old)
        log[:] = [*kept[1 - _KEPT :], new]

    def _report(self, old: Access, new: Access) -> None:
        if (old.task, new.stream) in self._freed:
            return  # what a next owner does follows from the free, which was reported
        if new.label == FREE:
            self._freed.add((old.task, new.stream))
        race = Race(str(old), str(new), old.site, new.site, _remedy(old, new))
        self.races.setdefault(race, (old.task, new.task))


def _remedy(old: Access, new: Access) -> str:
    if new.label in (FREE, ALLOCATION):
        return (
            f"The memory was let go while {old.where} may still use it: keep the tensor until an "
            f"event recorded after {old.label!r} is complete, or call its record_stream() with "
            f"{old.where}."
        )
    if old.label == ALLOCATION:
        return (
            f"The memory was allocated for {old.where}, where its last owner may still be at work: "
            f"{new.where} must wait for {old.where} before it uses the "
            "memory, or be the current one when the tensor is made."
        )
    return (
        f"{_capital(new.where)} must wait for {old.where}: record an event on {old.where} after "
        f"{old.label!r}, and make {new.where} wait for it before {new.label!r}."
    )


def _overlap(one: Span, other: Span) -> bool:
    return one.low < other.high and other.low < one.high


def _covers(outer: Span, inner: Span) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _at(site: str) -> str:
    return f" ({site})" if site else ""
