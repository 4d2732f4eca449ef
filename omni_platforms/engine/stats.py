"""What a `MultiprocExecutor` has done so far, in numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["data_parallel", "lockstep"]


@dataclass(frozen=True)
class WorkerStats:
    """One worker, as its parent sees it. Sizes in bytes."""

    rank: int
    pid: int
    platform: str
    device: str
    alive: bool
    requests: int
    """Requests at the worker that it has not computed."""
    outputs: int
    """Outputs and previews that it has sent and that were unpacked here."""
    bytes_received: int
    """Of their tensors and arrays."""


@dataclass(frozen=True)
class EngineStats:
    """A snapshot of one executor; counts since it was made.

    Of requests (a batch counts as one): `submitted`, `computed` (COMPUTE_DONE has come) and
    `failed_requests` (it came with an error, or the executor ended before). Of outputs:
    `delivered`, `failed` and `dropped`; `pending` are open. `queued` requests wait here for a
    worker. `calls` have not been answered. `late` counts replies that nobody waited for any more.
    """

    mode: Mode
    state: Literal["running", "asleep", "closing", "ended"]
    submitted: int
    computed: int
    failed_requests: int
    delivered: int
    failed: int
    dropped: int
    pending: int
    queued: int
    calls: int
    late: int
    workers: Sequence[WorkerStats] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary, for JSON."""
        return dataclasses.asdict(self)
