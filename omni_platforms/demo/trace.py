"""Both runs as a trace, which Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.spans import LANES
from omni_platforms.observe.trace_events import Event, document, name_process, name_track, span


def chrome_trace(runs: Sequence[RunRecord], labels: Sequence[str]) -> dict[str, Any]:
    """Return the trace as a JSON-ready document.

    One process a run, one thread a lane, each run from its own zero; `labels` names each
    request's photo.
    """
    events = [event for pid, run in enumerate(runs, 1) for event in _run_events(pid, run, labels)]
    return document(events)


def _run_events(pid: int, run: RunRecord, labels: Sequence[str]) -> Iterator[Event]:
    yield from name_process(pid, f"{run.name} run ({run.mode} copies)", pid)
    for tid, lane in enumerate(LANES, 1):
        yield from name_track((pid, tid), f"{lane} ({run.threads[lane]})", tid)
        for each in sorted(run.lanes[lane]):
            start, end = each.start - run.start, each.end - run.start
            args = {"request": each.request, "photo": labels[each.request]}
            yield span((pid, tid), f"{lane} {each.request}", lane, start, end, args)
