"""Stretches of time, and how long a lane was idle between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LANES = ("forward", "copy", "pack", "encode")
"""What happens to a request, in this order. `pack` makes 8-bit pixels and the host's picture."""


@dataclass(frozen=True, order=True)
class Span:
    """From `start` to `end` (seconds of `time.perf_counter()`), for request number `request`."""

    start: float
    end: float
    request: int

    @property
    def duration(self) -> float:
        """Its length in seconds."""
        return self.end - self.start


Lanes = dict[str, list[Span]]


def new_lanes() -> Lanes:
    """Return every lane, empty."""
    return {lane: [] for lane in LANES}


def lane_owners(device_type: str) -> dict[str, str]:
    """Return who does the work of each lane when nothing is asynchronous."""
    here = "calling thread"
    forward = here if device_type == "cpu" else "device"
    return {**dict.fromkeys(LANES, here), "forward": forward}


def append_span(lane: list[Span], start: float, end: float, request: int) -> Span:
    """Append a span that begins no earlier than the lane's last one ends, and return it.

    Moments that different threads saw can cross by microseconds.
    """
    start = max(start, lane[-1].end) if lane else start
    span = Span(start, max(start, end), request)
    lane.append(span)
    return span


def gaps(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return the stretches between the first start and the last end that no span covers."""
    found: list[tuple[float, float]] = []
    end: float | None = None
    for span in sorted(spans):
        if end is not None and span.start > end:
            found.append((end, span.start))
        end = span.end if end is None else max(end, span.end)
    return found


def idle_share(spans: Iterable[Span]) -> float:
    """Return which share of the time between the first start and the last end is a gap.

    From 0 to 1; 0 without spans and where all of them are empty.
    """
    spans = list(spans)
    if not spans:
        return 0.0
    total = max(span.end for span in spans) - min(span.start for span in spans)
    return sum(end - start for start, end in gaps(spans)) / total if total > 0 else 0.0
