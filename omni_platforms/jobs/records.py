"""What became of one request, and when: the line of `results.jsonl`, and the spans of the trace."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass, field
from typing import Any

from omni_platforms.engine import EngineFuture
from omni_platforms.jobs.requests import Request
from omni_platforms.jobs.results import FAILED, OK

STAGES = ("queue", "forward", "copy", "hand-over", "save")
_MOST_TEXT = 16 << 10


@dataclass
class Ended:
    """A request that ended. Times in seconds of `time.monotonic()`."""

    request: Request
    submitted: float
    output: Any = None
    files: list[str] = field(default_factory=list)
    error: BaseException | None = None
    stage: str = ""
    """Where it failed: forward, copy or save."""
    worker: int | None = None
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    saver: int = 0
    """The number of the thread that saved it."""
    finished: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether its output is saved."""
        return self.error is None

    @property
    def seconds(self) -> dict[str, float]:
        """How long it was where, and altogether."""
        spent = {stage: round(end - start, 6) for stage, (start, end) in self.spans.items()}
        return {**spent, "total": round(self.finished - self.submitted, 6)}

    def line(self) -> dict[str, Any]:
        """Return its line of `results.jsonl`."""
        request = self.request
        line = {
            "id": request.id,
            "line": request.line,
            "status": OK if self.ok else FAILED,
            "worker": self.worker,
            "seconds": self.seconds,
            "digest": request.digest,
        }
        if self.error is None:
            return {**line, "output": self.output, "files": self.files}
        return {**line, "stage": self.stage, "error": describe(self.error)}


def describe(error: BaseException) -> dict[str, str]:
    """Return what JSON says of an error."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind)
    lines = "".join(traceback.format_exception(error))
    return {"type": name, "message": str(error)[:_MOST_TEXT], "traceback": lines[-_MOST_TEXT:]}


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def spans_of(
    submitted: float,
    computed: EngineFuture,
    output: EngineFuture,
    arrived: float,
    *,
    device_events: bool,
) -> tuple[int | None, dict[str, tuple[float, float]]]:
    """Return which worker had a request, and when it was where until it arrived here.

    With `device_events` a forward ends when the worker's output thread has seen its event: the
    method returns earlier. Without, it ends with the method.
    """
    origin = output.origin or computed.origin
    if origin is None:
        return None, {}
    at = origin.stamps
    begun = at.get("compute", arrived)
    spans = {"queue": (submitted, begun)}
    if not {"room", "copy", "send"} <= at.keys():
        return origin.rank, {**spans, "forward": (begun, arrived)}  # it failed on the way
    ended = at["copy"] if device_events else at["room"]
    spans |= {"forward": (begun, ended), "copy": (ended, at["send"])}
    return origin.rank, {**spans, "hand-over": (at["send"], arrived)}


def now() -> float:
    """Return the clock of all spans, which the workers share on Linux."""
    return time.monotonic()
