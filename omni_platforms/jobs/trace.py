"""`trace.json`: where each request was when, as trace events that Perfetto and Chrome open.

Written as requests end, in the array format, which these programs also read when a kill has
cut its end off. Times in microseconds from the start of the run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from omni_platforms.errors import JobError
from omni_platforms.jobs.records import Ended

_WORKER_LANES = ("forward", "copy", "hand-over")
_SAVING = 0  # the process of the lanes that are this process's
_MOST_REQUESTS = 100_000


class Trace:
    """Writes the file while the run goes on. Use it as a context manager.

    `workers` names each; `start` is the run's zero in seconds of `time.monotonic()`. Raises
    `JobError` when the file cannot be written. Behind 100,000 requests it writes no more.
    """

    def __init__(self, path: Path, start: float, workers: Sequence[str]) -> None:
        self._path = path
        self._start = start
        self._ends: dict[tuple[int, int], float] = {}
        self._count = 0
        self._first = True
        self._file: TextIO | None = None
        self._workers = workers

    def __enter__(self) -> Trace:
        try:
            self._file = self._path.open("w", encoding="utf-8")
            self._file.write("[\n")
            for event in _names(self._workers):
                self._write(event)
        except OSError as error:
            raise self._refused(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        try:
            with self._file:
                self._file.write("\n]\n")
        except OSError as error:
            raise self._refused(error) from error

    def add(self, ended: Ended) -> None:
        """Write the spans of one request."""
        self._count += 1
        if self._count > _MOST_REQUESTS:
            return
        try:
            for event in self._events(ended):
                self._write(event)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> JobError:
        return JobError(f"{self._path} cannot be written ({error.strerror}): make room")

    def _write(self, event: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(("" if self._first else ",\n") + json.dumps(event))
        self._first = False

    def _events(self, ended: Ended) -> Iterator[dict[str, Any]]:
        rank = ended.worker
        if rank is None:
            return
        name, line = ended.request.id, ended.request.line
        args = {"request": name, "line": line, "status": "ok" if ended.ok else "failed"}
        if "queue" in ended.spans:
            yield from self._queued(rank, name, line, ended.spans["queue"])
        for stage, span in ended.spans.items():
            if stage in _WORKER_LANES:
                lane = (rank + 1, _WORKER_LANES.index(stage) + 1)
            elif stage == "save":
                lane = (_SAVING, ended.saver + 1)
            else:
                continue
            yield {"name": name, "cat": stage, "ph": "X", **self._within(lane, span), "args": args}

    def _queued(
        self, rank: int, name: str, line: int, span: tuple[float, float]
    ) -> Iterator[dict[str, Any]]:
        """Yield the two ends of a wait: several overlap, so they have no lane of their own."""
        for phase, moment in zip("be", span, strict=True):
            yield {
                "name": f"queue {name}",
                "cat": "queue",
                "ph": phase,
                "id": line,
                "ts": self._microseconds(moment),
                "pid": rank + 1,
                "tid": 0,
            }

    def _within(self, lane: tuple[int, int], span: tuple[float, float]) -> dict[str, Any]:
        """Return where a span stands: not before the last one of its lane has ended."""
        start = max(self._microseconds(span[0]), self._ends.get(lane, 0.0))
        end = self._ends[lane] = max(self._microseconds(span[1]), start)
        return {"ts": start, "dur": round(end - start, 3), "pid": lane[0], "tid": lane[1]}

    def _microseconds(self, moment: float) -> float:
        return round((moment - self._start) * 1e6, 3)


def _names(workers: Sequence[str]) -> Iterator[dict[str, Any]]:
    yield _name("process_name", _SAVING, 0, "omni-platforms run: saving")
    for rank, worker in enumerate(workers):
        yield _name("process_name", rank + 1, 0, worker)
        for number, lane in enumerate(_WORKER_LANES, start=1):
            yield _name("thread_name", rank + 1, number, lane)


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}
