"""Arrows of a trace: the way of each output through threads, devices and processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from omni_platforms.observe.trace_events import Event, Track, arrow

_STATIONS = ("submit", "forward", "copy", "on_host", "deliver", "receive OUTPUT_READY", "result")
"""The spans that an output passes, in order."""


class Ways:
    """Collects the spans of outputs; then gives the arrows between them."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, str], dict[str, Event]] = {}
        self._ambiguous: set[tuple[int, str]] = set()

    def add(self, owner: int, event: Event) -> None:
        """Take a span of an output whose executor is in process `owner`; others are ignored."""
        if event["ph"] != "X" or event["cat"] not in _STATIONS:
            return
        key, station = (owner, event["name"].split()[-1]), event["cat"]
        way = self._ways.setdefault(key, {})
        if station == "submit" and station in way:
            self._ambiguous.add(key)  # two executors of one process, with the same names
        if station == "forward" and "args" in event and event["args"].get("clock"):
            return  # the device's part of a forward: the thread's has the arrow
        way[station] = event

    def arrows(self) -> Iterator[Event]:
        """Yield an arrow from each span to the next of the same output."""
        number = 0
        for key, way in self._ways.items():
            passed = [way[station] for station in _STATIONS if station in way]
            if key in self._ambiguous:
                continue
            for source, target in itertools.pairwise(passed):
                moments = _moments(source, target)
                if moments is not None:
                    number += 1
                    leaves, comes = moments
                    yield from arrow(number, (_track(source), leaves), (_track(target), comes))


def _moments(source: Event, target: Event) -> tuple[float, float] | None:
    """Return when an arrow leaves a span and when it comes to the next one, in seconds.

    From the end of the one to the beginning of the other. Where they overlap, because one thread
    waits for another, as late as may be. Both just inside their spans: an arrow belongs to the
    span that is there at its moment.
    """
    leaves, comes = _end(source), target["ts"]
    if comes < leaves:
        comes = _end(target)
    if comes < leaves:
        leaves = source["ts"]
    return None if comes < leaves else (leaves / 1e6, comes / 1e6)


def _end(event: Event) -> float:
    return float(event["ts"] + 0.999 * event["dur"])


def _track(event: Event) -> Track:
    return event["pid"], event["tid"]
