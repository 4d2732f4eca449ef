"""Trace events, as Perfetto and chrome://tracing read them: the one place that knows the format.

A trace is a list of events. A process is a group of tracks, and a thread is a track; both are
numbers with a name, and need be no processes and threads of the system. Times are microseconds,
with nanoseconds as decimals. Format: "Trace Event Format" of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

Event = dict[str, Any]
Track = tuple[int, int]
"""The number of its process, and its own."""


def microseconds(seconds: float) -> float:
    """Return a time as the format has it."""
    return round(seconds * 1e6, 3)


def name_process(process: int, name: str, place: int | None = None) -> Iterator[Event]:
    """Yield the events that name a process and, with `place`, say where it stands in the list."""
    yield _about("process_name", (process, 0), name=name)
    if place is not None:
        yield _about("process_sort_index", (process, 0), sort_index=place)


def name_track(track: Track, name: str, place: int | None = None) -> Iterator[Event]:
    """Yield the events that name a track and, with `place`, say where it stands in its process."""
    yield _about("thread_name", track, name=name)
    if place is not None:
        yield _about("thread_sort_index", track, sort_index=place)


def _about(kind: str, track: Track, **args: Any) -> Event:
    return {"name": kind, "ph": "M", "ts": 0, "pid": track[0], "tid": track[1], "args": args}


def span(
    track: Track, name: str, category: str, start: float, end: float, args: Mapping[str, Any]
) -> Event:
    """Return an event from `start` to `end`, in seconds. Those of one track must nest."""
    ts = microseconds(start)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": ts,
        "dur": round(max(0.0, microseconds(end) - ts), 3),
        "pid": track[0],
        "tid": track[1],
        "args": dict(args),
    }


def moment(track: Track, name: str, category: str, at: float, args: Mapping[str, Any]) -> Event:
    """Return an event without length, on its track."""
    where = {"pid": track[0], "tid": track[1], "ts": microseconds(at)}
    return {"name": name, "cat": category, "ph": "i", "s": "t", **where, "args": dict(args)}


def overlapping(
    track: Track, name: str, category: str, start: float, end: float, number: int | str
) -> Iterator[Event]:
    """Yield the two ends of a span that others of its kind may overlap.

    `number` tells them apart within their category.
    """
    for phase, at in (("b", start), ("e", end)):
        yield {
            "name": name,
            "cat": category,
            "ph": phase,
            "id": number,
            "ts": microseconds(at),
            "pid": track[0],
            "tid": track[1],
        }


def arrow(number: int, source: tuple[Track, float], target: tuple[Track, float]) -> Iterator[Event]:
    """Yield the two ends of an arrow, from the span that is there at a moment to another."""
    for phase, (track, at) in (("s", source), ("f", target)):
        where = {"pid": track[0], "tid": track[1], "ts": microseconds(at)}
        more = {"bp": "e"} if phase == "f" else {}
        yield {"name": "output", "cat": "output", "ph": phase, "id": number, **more, **where}


class Lanes:
    """Keeps spans of one track apart: none begins before the last one of its track has ended.

    Moments that different threads saw can cross by microseconds, and then nothing would nest.
    """

    def __init__(self) -> None:
        self._ends: dict[Track, float] = {}

    def fit(self, track: Track, start: float, end: float) -> tuple[float, float]:
        """Return where a span from `start` to `end` stands, and remember its end."""
        start = max(start, self._ends.get(track, start))
        end = self._ends[track] = max(start, end)
        return start, end


class ArrayWriter:
    """Writes events one by one, in the array format, of which a cut-off file can be read, too.

    Its methods raise `OSError` when the file cannot be written.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._first = True
        file.write("[\n")

    def write(self, event: Event) -> None:
        """Append one event."""
        self._file.write(("" if self._first else ",\n") + json.dumps(event))
        self._first = False

    def end(self) -> None:
        """Write the end. The file stays open."""
        self._file.write("\n]\n")


def document(events: list[Event]) -> dict[str, Any]:
    """Return events as one document, in the object format."""
    return {"traceEvents": events, "displayTimeUnit": "ms"}
