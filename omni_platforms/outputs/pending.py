"""One output between submit and its result: the record that all threads share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from omni_platforms.outputs.host_copy import own_tensors
from omni_platforms.outputs.nest import Rebuild

if TYPE_CHECKING:
    from omni_platforms.outputs.batch import Batch, Group, Share
    from omni_platforms.outputs.future import OutputFuture


class Phase(str, Enum):
    """Where an output is on its way to the host."""

    GATE = "gate"
    """The device has not finished computing it."""
    COPY = "copy"
    """The copy to the host is under way on the side stream."""
    WAITER = "waiter"
    """The copy is done; the background thread has not looked yet."""
    QUEUE = "queue"
    """The copy is done; earlier outputs must be resolved first."""
    PACK = "pack"
    """Its `on_host` is running."""


WAITS_FOR = {
    Phase.GATE: "the device to finish the work enqueued before submit",
    Phase.COPY: "the copy on the side stream",
    Phase.WAITER: "the background thread to wake up",
    Phase.QUEUE: "an earlier output of this executor",
    Phase.PACK: "its on_host function to return",
}


@dataclass(frozen=True)
class PendingDescription:
    """One line of `describe_pending()`: ages in seconds, sizes in bytes."""

    number: int
    phase: Phase
    age: float
    nbytes: int
    waits_for: str

    def __str__(self) -> str:
        return (
            f"output {self.number}: {self.phase.value} for {self.waits_for} "
            f"(age {self.age:.3f} s, {self.nbytes} bytes)"
        )


class OutputTimeline(NamedTuple):
    """When an output reached each stage, in seconds of `time.perf_counter()`.

    `ready` is when the host saw the device complete it, and `None` where nobody
    looked separately; `copied` when the host saw the copy complete; `packed`
    when the host nest was built for `on_host`, else as `resolved`; `resolved`
    when the future was settled.
    """

    submitted: float
    ready: float | None
    copied: float
    packed: float
    resolved: float


class PendingOutput:
    """The record of one submitted output; `Waiter` owns its way through the phases.

    The defaults below are class attributes because most outputs change few of them.
    """

    needs_thread = False
    """Somebody listens, or `on_host` is to run: only the background thread resolves it."""
    lingers = False
    """It is small, and nobody but a caller of `result()` waits for it."""
    own_stream = False
    """Its copy is on the caller's own stream."""
    batch: Batch | None = None
    """Where it waits for company: its copy is not started."""
    shared = False
    """It travels with a batch: its leaves are `shares()`, and `values` is not to be looked at."""
    group: Group | None = None
    place = 0
    """Where in a batch the only leaf of an output is; more leaves have a list in `values`."""
    packing = False
    finished = False
    """Nothing of this output is in flight any more."""
    gate: torch.Event | None = None
    done: torch.Event | None = None
    error: BaseException | None = None
    sources: Any = None
    """What must stay alive until the copy is done."""
    values: Sequence[Any] = ()
    staged: Sequence[int] = ()
    """Which of the values are in small pinned buffers that are wanted back."""
    rebuild: Rebuild | None = None
    nbytes = 0
    charge = 0
    ready: float | None = None
    copied: float | None = None
    packed: float | None = None
    resolved: float | None = None

    on_host: Callable[[Any], Any] | None = None
    future: OutputFuture | None = None
    """Until it is settled."""

    def __init__(self, number: int, lock: threading.RLock) -> None:
        self.number = number
        self.lock = lock
        """The executor's lock for changes of a future that many threads may make."""
        self.submitted = time.perf_counter()

    def is_copied(self) -> bool:
        """Whether the device has finished writing this output. Does not block."""
        done = self.done
        return done is None or done.query()

    def let_go(self) -> None:
        """Drop the device tensors and events: the copy is done."""
        self.sources = self.gate = self.done = None
        if self.shared:
            for group, _ in self.shares():
                group.leaves = []

    def shares(self) -> Sequence[Share]:
        """Return where in a batch each leaf of this output is."""
        return self.values if self.group is None else ((self.group, self.place),)

    def forget(self) -> None:
        """Let go of all values, and of what would make a result of them."""
        self.group = self.rebuild = self.on_host = None
        self.values = ()

    def make(self) -> Any:
        """Build the result from what has arrived with a batch. May be called once."""
        assert self.rebuild is not None
        with own_tensors():
            return self.rebuild([group.value(at) for group, at in self.shares()])

    def phase(self, at_head: bool) -> Phase:
        """Say where the output is, by asking the device. Does not block."""
        if self.packing:
            return Phase.PACK
        if self.batch is not None:
            return Phase.GATE
        gate, done = self.gate, self.done
        if gate is not None and not gate.query():
            return Phase.GATE
        if done is not None and not done.query():
            return Phase.GATE if self.own_stream else Phase.COPY
        return Phase.WAITER if at_head else Phase.QUEUE

    def describe(self, at_head: bool) -> PendingDescription:
        """Describe the output for a person."""
        phase = self.phase(at_head)
        age = time.perf_counter() - self.submitted
        return PendingDescription(self.number, phase, age, self.nbytes, WAITS_FOR[phase])

    def timeline(self) -> OutputTimeline:
        """Return the moments, once the output was resolved."""
        copied = self.submitted if self.copied is None else self.copied
        resolved = copied if self.resolved is None else self.resolved
        packed = resolved if self.packed is None else self.packed
        return OutputTimeline(self.submitted, self.ready, copied, packed, resolved)
