"""What the audit knows of the calling thread, and the way in for everything that waits.

Hooks of the whole process (operators, methods, functions) call `observe`; on a
thread without an audit it does nothing but call on.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, NamedTuple, Protocol

from omni_platforms.audit.constancy import UNKNOWN
from omni_platforms.audit.kinds import Kind


class Seen(NamedTuple):
    """A wait: its kind, what was read (`values.Value`) and who saw it."""

    kind: Kind
    value: Any
    source: str


class Unread(NamedTuple):
    """Stands for the value of a wait that read none; the fields of `values.Value`."""

    token: Any = UNKNOWN
    what: Any = None
    nbytes: int = 0

    def show(self) -> Any:
        """Return nothing."""
        return None


UNREAD = Unread()


class World(Protocol):
    """Which tensors are taken as the device's."""

    def on_device(self, tensor: Any) -> bool:
        """Whether reading `tensor` makes the host wait."""

    def is_there(self, tensor: Any) -> bool:
        """The same of a tensor that holds data."""


class Recorder(Protocol):
    """Takes the waits of the thread that it was entered on: a `SyncAudit`."""

    operators: Counter[str]
    reads: int

    def step(self, request: Any = None) -> AbstractContextManager[Any]:
        """Begin a step."""

    def note_output(self, value: Any, name: str = "output") -> None:
        """Note what the program computed."""

    def record(
        self, frame: FrameType, seen: Seen, waits: int, blocked: float, at: int | None
    ) -> None:
        """Take one call that waited `waits` times for `blocked` seconds."""

    def vendor_saw(self, frame: FrameType, seen: Seen) -> None:
        """Take a wait that the vendor told of outside a watched call."""

    def record_number(
        self, frame: FrameType, how: tuple[Kind, str], number: Any, tensor: Any, blocked: float
    ) -> None:
        """Take one number that was read from `tensor`, the quick way; `how` is kind and source."""


class _Here(threading.local):
    """The audits of this thread, the outermost first, and the watched call that runs now."""

    audits: tuple[Recorder, ...] = ()
    world: World | None = None
    """None where there are no audits."""
    mark: Callable[[], tuple[int, AbstractContextManager[Any]]] | None = None
    """Where the profiler runs: makes a numbered mark in its trace."""
    busy = False
    copying = False
    """Whether an operator runs that copies between host and device."""
    waits = 0
    """How many operators inside the watched call made the host wait."""
    reading = Kind.SCALAR_READ
    """The kind that a number is read for now, outside watched calls."""
    told = 0
    """How many waits inside it the vendor's sync-debug mode told of."""


here = _Here()

allowed_reasons: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "omni_platforms_audit_allowed", default=()
)
"""Why waits are allowed in this task or thread, the outermost region first."""


class Call(NamedTuple):
    """A watched call that is over. `result` is `NotImplemented` where it raised."""

    frame: FrameType
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    waits: int
    """How many operators inside made the host wait."""


Judge = Callable[[Call], "Seen | None"]
"""Says what to record of a call."""


def observe(
    call: Callable[..., Any], judge: Judge, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a call that may wait, on a thread that is audited and not yet inside one.

    The caller is the hook; its own caller is where the search for the user's
    frame begins. A call that raises is recorded where waits were seen inside.
    """
    here.busy, here.waits, here.told = True, 0, 0
    result: Any = NotImplemented
    at = None
    start = time.perf_counter()
    try:
        if here.mark is None:
            result = call(*args, **kwargs)
        else:
            at, mark = here.mark()
            with mark:
                result = call(*args, **kwargs)
        return result
    finally:
        blocked = time.perf_counter() - start
        waits = here.waits
        frame = sys._getframe(2)
        try:
            seen = judge(Call(frame, args, kwargs, result, waits))
            if seen is None and here.told:
                seen = Seen(Kind.VENDOR, UNREAD, "sync-debug")
            if seen is not None:
                for audit in here.audits:
                    audit.record(frame, seen, waits, blocked, at)
        finally:
            here.busy = False
