"""Which tasks run by themselves, and when: the schedules of the simulator.

A schedule has a name, so that it can be printed and run again:

- `eager`: every task runs as soon as it is enqueued, the order that hides bugs;
- `lazy`: a task runs only when a wait of the host or of a stream demands it;
- `lazy:0.1` or `lazy:0.1,0.2`: only these streams (device.number) are lazy;
- `only:0.1`: all streams are lazy but this one;
- `random:7`: after each enqueue, tasks of random streams run; 7 is the seed.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.task import Queue, StreamKey

if TYPE_CHECKING:
    from omni_platforms.simulator.scheduler import Scheduler

POLLS = 3
"""How often a query of unfinished work answers False before it makes the work progress."""


class Policy:
    """The eager schedule, and the base of the others."""

    name = "eager"
    polls = POLLS

    def __str__(self) -> str:
        return self.name

    def is_lazy(self, queue: Queue) -> bool:
        """Whether the tasks of `queue` wait until they are demanded."""
        return False

    def after_submit(self, scheduler: Scheduler, queue: Queue) -> None:
        """Run what should run now that `queue` has one task more."""
        if not self.is_lazy(queue):
            scheduler.drain(queue)


class LazyPolicy(Policy):
    """Runs the tasks of some streams (all, when `streams` is `None`) only on demand."""

    def __init__(self, streams: frozenset[StreamKey] | None = None) -> None:
        self._streams = streams
        self.name = "lazy"
        if streams is not None:
            self.name += ":" + ",".join(f"{device}.{number}" for device, number in sorted(streams))

    def is_lazy(self, queue: Queue) -> bool:
        """Whether the tasks of `queue` wait until they are demanded."""
        return self._streams is None or queue.key in self._streams


class OnlyPolicy(Policy):
    """Runs the tasks of one stream as soon as they are enqueued, all others on demand."""

    def __init__(self, stream: StreamKey) -> None:
        self._stream = stream
        self.name = f"only:{stream[0]}.{stream[1]}"

    def is_lazy(self, queue: Queue) -> bool:
        """Whether the tasks of `queue` wait until they are demanded."""
        return queue.key != self._stream


class RandomPolicy(Policy):
    """After each enqueue, runs first tasks of random streams; equal seeds do the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.name = f"random:{seed}"

    def is_lazy(self, queue: Queue) -> bool:
        """Whether the tasks of `queue` wait until they are demanded: they may."""
        return True

    def after_submit(self, scheduler: Scheduler, queue: Queue) -> None:
        """Run a random number of tasks of random streams."""
        while self._random.random() < 0.5:
            ready = scheduler.waiting_queues()
            if not ready:
                return
            chosen = self._random.choice(ready)
            scheduler.drain(chosen, chosen.tasks[0])


def policy_named(name: str) -> Policy:
    """Return a new policy for a schedule's name. Raises `SimulatorStateError` for a bad one."""
    kind, _, rest = name.partition(":")
    try:
        if name == "eager":
            return Policy()
        if name == "lazy":
            return LazyPolicy()
        if kind == "lazy":
            return LazyPolicy(frozenset(_stream_key(part) for part in rest.split(",")))
        if kind == "only":
            return OnlyPolicy(_stream_key(rest))
        if kind == "random":
            return RandomPolicy(int(rest))
    except ValueError as error:
        raise SimulatorStateError(_refusal(name)) from error
    raise SimulatorStateError(_refusal(name))


def _stream_key(text: str) -> StreamKey:
    device, number = text.split(".")
    return int(device), int(number)


def _refusal(name: str) -> str:
    return (
        f"{name!r} is not a schedule. Use 'eager', 'lazy', 'lazy:<device>.<stream>,...', "
        "'only:<device>.<stream>' or 'random:<seed>'."
    )
