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
                if source["ts"] <= target["ts"] + target["dur"]:
                    number += 1
                    yield from arrow(number, _start(source), _end(target))


def _start(event: Event) -> tuple[Track, float]:
    return (event["pid"], event["tid"]), event["ts"] / 1e6


def _end(event: Event) -> tuple[Track, float]:
    # Just inside: an arrow belongs to the span that is there at its moment.
    return (event["pid"], event["tid"]), (event["ts"] + 0.999 * event["dur"]) / 1e6
