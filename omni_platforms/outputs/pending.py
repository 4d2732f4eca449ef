"""One output between submit and its result: the record that all threads share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from omni_platforms.outputs.nest import Rebuild

if TYPE_CHECKING:
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


@dataclass(frozen=True)
class OutputTimeline:
    """When an output reached each stage, in seconds of `time.perf_counter()`.

    `ready` is when the host saw the device complete it, and `None` where nobody
    looked separately; `copied` when the host saw the copy complete; `packed`
    when the host nest was built; `resolved` when the future was settled.
    """

    submitted: float
    ready: float | None
    copied: float
    packed: float
    resolved: float


class PendingOutput:
    """The record of one submitted output; `Waiter` owns its way through the phases."""

    __slots__ = (
        "charge",
        "done",
        "error",
        "fetch",
        "finished",
        "future",
        "gate",
        "lingers",
        "marks",
        "nbytes",
        "needs_thread",
        "number",
        "on_host",
        "packing",
        "rebuild",
        "settled",
        "sources",
        "staged",
        "values",
    )

    def __init__(
        self, number: int, future: OutputFuture, on_host: Callable[[Any], Any] | None
    ) -> None:
        self.number = number
        self.future = future
        self.on_host = on_host
        self.needs_thread = on_host is not None
        self.lingers = False  # small, and nobody but a caller of result() waits for it
        self.packing = False
        self.settled = False  # the future has its result, or somebody is giving it one
        self.finished = False  # nothing of this output is in flight any more
        self.gate: torch.Event | None = None
        self.done: torch.Event | None = None
        self.error: BaseException | None = None
        self.sources: Any = None  # what must stay alive until the copy is done
        self.fetch: Callable[[], list[Any]] | None = None  # makes the values, if not yet copied
        self.staged = False  # the values are in a small pinned buffer that is wanted back
        self.values: list[Any] = []
        self.rebuild: Rebuild | None = None
        self.nbytes = 0
        self.charge = 0
        self.marks: dict[str, float] = {"submitted": time.perf_counter()}

    def copied(self) -> bool:
        """Whether the device has finished writing this output. Does not block."""
        done = self.done
        return done is None or done.query()

    def let_go(self) -> None:
        """Drop the device tensors and events: the copy is done."""
        self.sources = self.gate = self.done = self.fetch = None

    def fetch_late(self) -> None:
        """Make the copy that was left to this moment; blocks for some microseconds."""
        fetch = self.fetch
        if fetch is not None and self.error is None:
            self.values = fetch()

    def host_values(self) -> list[Any]:
        """Return the values as the result keeps them.

        Small ones move from pinned to ordinary memory: a result that is kept
        would otherwise keep a pinned block, and pinning a new one for every
        output costs more than everything else (about 50 us on an H200 host).
        """
        if not self.staged:
            return self.values
        return [
            value.clone() if isinstance(value, torch.Tensor) else value for value in self.values
        ]

    def phase(self, at_head: bool) -> Phase:
        """Say where the output is, by asking the device. Does not block."""
        if self.packing:
            return Phase.PACK
        gate, done = self.gate, self.done
        if gate is not None and not gate.query():
            return Phase.GATE
        if done is not None and not done.query():
            return Phase.COPY if self.fetch is None else Phase.GATE
        return Phase.WAITER if at_head else Phase.QUEUE

    def describe(self, at_head: bool) -> PendingDescription:
        """Describe the output for a person."""
        phase = self.phase(at_head)
        age = time.perf_counter() - self.marks["submitted"]
        return PendingDescription(self.number, phase, age, self.nbytes, WAITS_FOR[phase])

    def timeline(self) -> OutputTimeline:
        """Return the moments, once the output was resolved."""
        marks = self.marks
        copied = marks.get("copied", marks["submitted"])
        packed = marks.get("packed", copied)
        resolved = marks.get("resolved", packed)
        return OutputTimeline(marks["submitted"], marks.get("ready"), copied, packed, resolved)
