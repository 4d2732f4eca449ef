"""Both runs as a Chrome trace, which Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.spans import LANES


def chrome_trace(runs: Sequence[RunRecord], labels: Sequence[str]) -> dict[str, Any]:
    """Return the trace as a JSON-ready document.

    One process a run, one thread a lane, each run from its own zero; `ts` and
    `dur` in microseconds, with nanoseconds as decimals. `labels` names each
    request's photo.
    """
    events = [event for pid, run in enumerate(runs, 1) for event in _run_events(pid, run, labels)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _run_events(pid: int, run: RunRecord, labels: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", pid, 0, name=f"{run.name} run ({run.mode} copies)")
    yield _metadata("process_sort_index", pid, 0, sort_index=pid)
    for tid, lane in enumerate(LANES, 1):
        yield _metadata("thread_name", pid, tid, name=f"{lane} ({run.threads[lane]})")
        yield _metadata("thread_sort_index", pid, tid, sort_index=tid)
        for span in sorted(run.lanes[lane]):
            start = _microseconds(span.start - run.start)
            end = _microseconds(span.end - run.start)
            yield {
                "name": f"{lane} {span.request}",
                "cat": lane,
                "ph": "X",
                "ts": start,
                "dur": round(end - start, 3),
                "pid": pid,
                "tid": tid,
                "args": {"request": span.request, "photo": labels[span.request]},
            }


def _metadata(kind: str, pid: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
