"""What an executor has done so far, in numbers."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from typing import Any, Literal


class Counters:
    """Running totals that any thread may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(_TOTALS, 0)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to one total."""
        with self._lock:
            self._totals[name] += amount

    def totals(self) -> dict[str, int]:
        """Return a copy of all totals."""
        with self._lock:
            return dict(self._totals)


_TOTALS = (
    "failed",
    "cancelled",
    "degraded",
    "blocking_leaves",
    "wakeups",
)


@dataclass(frozen=True)
class OutputStats:
    """A snapshot of one executor; counts since it was made, sizes in bytes.

    `mode` is "async" or "blocking", and `reason` says why when it is blocking.
    `pinned` says whether copies land in pinned memory. `resolved` counts
    results delivered, `failed` and `cancelled` the others. `degraded` counts
    outputs that were copied with a blocking call because the executor was full,
    `blocking_leaves` tensors that a side stream cannot copy (sparse, quantized,
    on another device), `at_once` small outputs that `submit` copied itself because the
    device had nothing left to do. `wakeups` counts how often the background thread ran.
    """

    mode: Literal["async", "blocking"]
    reason: str
    pinned: bool
    submitted: int
    resolved: int
    failed: int
    cancelled: int
    degraded: int
    blocking_leaves: int
    at_once: int
    bytes_copied: int
    wakeups: int
    pending: int
    pending_bytes: int
    peak_pending_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary, for JSON."""
        return dataclasses.asdict(self)
