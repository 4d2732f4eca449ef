"""What an executor has in hand, for people: `describe_pending_state` and every timeout show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_platforms.engine.ledger_records import OutputDescription

_SHOWN = 12


@dataclass(frozen=True)
class PendingState:
    """The bookkeeping of one moment. Ages in seconds. `str()` gives it as text."""

    outputs: Sequence[OutputDescription] = ()
    """Every open output, oldest first."""
    queued: int = 0
    """Requests that wait in the parent."""
    at_workers: Sequence[int] = ()
    """Requests without COMPUTE_DONE at each worker."""
    calls: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Calls under way: the ranks that have not answered."""
    unacknowledged: Sequence[str] = ()
    """Dropped outputs that a worker may still work on."""
    late: int = 0
    """Replies that nobody waited for any more."""
    failure: str | None = None
    """What ended the executor."""
    workers: Mapping[int, Any] = field(default_factory=dict)
    """What workers that were asked said themselves: for each rank its outputs and their phases
    (queue, compute, room, gate, copy, send)."""

    def __str__(self) -> str:
        lines = [
            f"{len(self.outputs)} outputs are open; {self.queued} requests wait in the parent and "
            f"{list(self.at_workers)} are at the workers; {self.late} replies came too late",
            *_shown(map(_line, self.outputs), len(self.outputs)),
            *(f"  call {name} waits for ranks {ranks}" for name, ranks in self.calls.items()),
        ]
        if self.unacknowledged:
            lines.append(f"  dropped, not acknowledged: {', '.join(self.unacknowledged[:_SHOWN])}")
        for rank, said in self.workers.items():
            lines.append(f"  worker {rank} says: {said}")
        if self.failure is not None:
            lines.append(f"  the executor has ended: {self.failure}")
        return "\n".join(lines)


def _line(output: OutputDescription) -> str:
    awaited = ", awaited" if output.awaited else ""
    return f"  {output.id}: {output.stage.value} (for {output.age:.1f} s since submit{awaited})"


def _shown(lines: Iterable[str], count: int) -> list[str]:
    first = [line for line, _ in zip(lines, range(_SHOWN), strict=False)]
    return first if count <= _SHOWN else [*first, f"  ... and {count - _SHOWN} more"]
