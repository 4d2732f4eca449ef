"""What the ledger writes down: jobs, their outputs, and what its caller has to do next."""

from __future__ import annotations

import concurrent.futures
import copy
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from omni_platforms.errors import RequestFailedError

Future = concurrent.futures.Future[Any]


class Origin(NamedTuple):
    """Which worker something came from, and when it was where on the way.

    `stamps` are when an output entered each phase of its worker (queue, compute, room, gate, copy,
    send), in seconds of `time.monotonic()`, which is one clock for all processes of a Linux host.
    """

    rank: int
    stamps: Mapping[str, float]


class Outcome(NamedTuple):
    """How something ended: with a value, or with an error."""

    value: Any = None
    error: BaseException | None = None
    origin: Origin | None = None


def again(error: BaseException) -> BaseException:
    """Return a copy of an error, for one more who gets it.

    An exception keeps the frames that it was raised through, with all that they hold: one
    object for several would keep them for as long as the last, and whoever remembers an
    error must remember one that is never raised.
    """
    try:
        another = copy.copy(error)
    except Exception:  # noqa: BLE001  a class that cannot be made from its own arguments
        another = None
    if type(another) is not type(error):
        another = RequestFailedError(f"{type(error).__name__}: {error}")
    another.__cause__ = error.__cause__
    return another.with_traceback(None)


class Stage(enum.Enum):
    """Where an output is, as far as the parent knows. A timeout names it."""

    QUEUED = "waiting in the parent for a worker"
    COMPUTING = "at the worker, which has not finished its forward (COMPUTE_DONE)"
    COPYING = "computed, and on its way out of the worker (OUTPUT_READY)"
    ARRIVED = "here, and nobody has asked for it"


@dataclass(eq=False)
class Job:
    """One message of work: a request with one output, or a batch with one for each member.

    Times are seconds of the ledger's clock, `None` for what has not happened.
    """

    id: str
    future: Future | None
    """For COMPUTE_DONE; `None` once it is settled."""
    split: bool
    """The ids of all its outputs are known."""
    opened: float
    sent: float | None = None
    rank: int | None = None
    """The worker that its outputs come from."""
    computed: float | None = None
    error: BaseException | None = None
    """What became of outputs that are not here yet."""
    dropped: bool = False
    members: dict[str, Output] = field(default_factory=dict)
    """The outputs that are open, by id. Before the split: those that somebody spoke of."""


@dataclass(eq=False)
class Output:
    """One output that is open: neither delivered, nor dropped, nor given up."""

    id: str
    job: Job
    future: Future | None = None
    """Somebody waits."""
    outcome: Outcome | None = None
    """It has arrived, and nobody waits."""

    @property
    def stage(self) -> Stage:
        """Where it is."""
        if self.outcome is not None:
            return Stage.ARRIVED
        if self.job.computed is not None:
            return Stage.COPYING
        return Stage.QUEUED if self.job.sent is None else Stage.COMPUTING


@dataclass
class Effects:
    """What the caller does once it has let go of the lock: it may run anybody's code."""

    settle: list[tuple[Future, Outcome]] = field(default_factory=list)
    """Futures to settle. One may be cancelled meanwhile: its value is let go."""
    release: list[Any] = field(default_factory=list)
    """Values that nobody will get."""
    tell: list[str] = field(default_factory=list)
    """Ids whose outputs the worker must drop, all of one job."""
    rank: int | None = None
    """The worker to tell; `None` when the job is not at any yet."""
    acknowledged: Future | None = None
    """For `drop`: done when no memory of the output is in use; `None` if nothing was open."""

    def add(self, more: Effects) -> None:
        """Add what another call returned."""
        self.settle += more.settle
        self.release += more.release


class OutputDescription(NamedTuple):
    """One open output, for people: its stage, and the seconds since it was submitted."""

    id: str
    stage: Stage
    age: float
    awaited: bool
