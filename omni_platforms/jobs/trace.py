"""`trace.json`: where each request was when, as a trace that Perfetto and Chrome open.

Written as requests end, in the array format, which these programs also read when a kill has
cut its end off. Times from the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from omni_platforms.errors import JobError
from omni_platforms.jobs.records import Ended
from omni_platforms.observe.trace_events import (
    ArrayWriter,
    Event,
    Lanes,
    Track,
    name_process,
    name_track,
    overlapping,
    span,
)

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
        self._lanes = Lanes()
        self._count = 0
        self._file: TextIO | None = None
        self._writer: ArrayWriter | None = None
        self._workers = workers

    def __enter__(self) -> Trace:
        try:
            self._file = self._path.open("w", encoding="utf-8")
            self._writer = ArrayWriter(self._file)
            for event in _names(self._workers):
                self._writer.write(event)
        except OSError as error:
            raise self._refused(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None or self._writer is None:
            return
        try:
            with self._file:
                self._writer.end()
        except OSError as error:
            raise self._refused(error) from error

    def add(self, ended: Ended) -> None:
        """Write the spans of one request."""
        self._count += 1
        if self._count > _MOST_REQUESTS or self._writer is None:
            return
        try:
            for event in self._events(ended):
                self._writer.write(event)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> JobError:
        return JobError(f"{self._path} cannot be written ({error.strerror}): make room")

    def _events(self, ended: Ended) -> Iterator[Event]:
        rank = ended.worker
        if rank is None:
            return
        name, line = ended.request.id, ended.request.line
        args = {"request": name, "line": line, "status": "ok" if ended.ok else "failed"}
        if "queue" in ended.spans:  # several overlap, so they have no lane of their own
            start, end = ended.spans["queue"]
            yield from overlapping(
                (rank + 1, 0),
                f"queue {name}",
                "queue",
                start - self._start,
                end - self._start,
                line,
            )
        for stage, (start, end) in ended.spans.items():
            lane = _lane(stage, rank, ended.saver)
            if lane is not None:
                fitted = self._lanes.fit(lane, start - self._start, end - self._start)
                yield span(lane, name, stage, *fitted, args)


def _lane(stage: str, rank: int, saver: int) -> Track | None:
    if stage in _WORKER_LANES:
        return rank + 1, _WORKER_LANES.index(stage) + 1
    return (_SAVING, saver + 1) if stage == "save" else None


def _names(workers: Sequence[str]) -> Iterator[Event]:
    yield from name_process(_SAVING, "omni-platforms run: saving")
    for rank, worker in enumerate(workers):
        yield from name_process(rank + 1, worker)
        for number, lane in enumerate(_WORKER_LANES, start=1):
            yield from name_track((rank + 1, number), lane)
