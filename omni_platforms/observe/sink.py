"""What observers of executors implement, and the record that they get of each output."""

from __future__ import annotations

import concurrent.futures
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

RecordKind = Literal["output", "request", "arrival", "work"]
"""An output of an `AsyncOutputExecutor`; a request of a `MultiprocExecutor`, until COMPUTE_DONE; an
output of it, for whom somebody waits; the same output in its worker's process."""


def now() -> float:
    """Return the time in seconds of CLOCK_MONOTONIC, which all processes of a host share.

    On Linux `time.perf_counter()` is the same clock.
    """
    return time.monotonic()


@dataclass(eq=False)
class Record:
    """One output, or request, from its begin to its end. Moments are seconds of `now()`.

    `source` names the executor within its process. `moments` are the stages that the executor has
    stamped, and `spans` what a device's own clock says (name: begin and end, already in seconds
    of `now()`). Both are complete when the record is closed.
    """

    kind: RecordKind
    id: str
    source: str
    device: str = ""
    opened: float = field(default_factory=now)
    closed: float = 0.0
    moments: dict[str, float] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Such as its bytes, and the worker's rank."""
    error: str | None = None
    """The error's type, where it ended with one; "cancelled" for a result that was given up."""
    kept: dict[Any, Any] = field(default_factory=dict)
    """What sinks keep with it, each under itself."""


def name_of(error: BaseException | None) -> str | None:
    """Return what a record says of an error: its type, or "cancelled"."""
    if isinstance(error, concurrent.futures.CancelledError):
        return "cancelled"
    return None if error is None else type(error).__name__


class Sink:
    """Hears what observed executors do. Each method here does nothing.

    They are called on the thread on which something happens, while it happens: they must neither
    block nor raise (what they raise is logged, once).
    """

    def step(self, name: str, subject: str) -> AbstractContextManager[Any] | None:
        """Return a context that stands around one step of the calling thread, or `None`.

        `name` is what the thread does (submit, on_host, result, receive, forward, deliver),
        `subject` which output it does it for, or "" where that is not known yet: then the context
        may have a method `about(subject)`, which is called before the step ends.
        """
        return None

    def opened(self, record: Record) -> None:
        """An output was handed over, or a request was submitted: on its caller's thread."""

    def closed(self, record: Record) -> None:
        """It has ended: on the thread that settles it."""
