"""The events that processes have left, merged into one trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_platforms.observe.ring import Ring
from omni_platforms.observe.trace_events import (
    Event,
    Lanes,
    Track,
    document,
    name_process,
    name_track,
    span,
)
from omni_platforms.observe.ways import Ways

_ROLES = {
    "submit": "submits",
    "forward": "forwards",
    "deliver": "output thread",
    "on_host": "output thread",
    "receive": "pump",
    "result": "consumer",
}
"""What a thread is called for the steps that it makes."""
_CLOCKS = {"device": "its own times", "host": "times seen by the host"}
_PLACES = ["submits", "forwards", "output thread", "pump", "consumer"]


@dataclass
class Merged:
    """A trace, and what is not in it. `seconds` is the time from its first event to its last."""

    trace: dict[str, Any]
    processes: int
    spans: int
    seconds: float
    lost: int
    """Events that were overwritten by later ones of their process."""
    damaged: int
    """Events that cannot be read."""
    clocks: int
    """Of how many hosts, or starts of one, they are: the clocks of two do not agree."""
    unreadable: list[str] = field(default_factory=list)
    """Files that hold no events."""


def merge(folder: Path) -> Merged:
    """Merge every ring in a folder. Raises `OSError` when it cannot be read."""
    rings, unreadable = [], []
    for path in sorted(folder.glob("*.ring")):
        try:
            ring = Ring(path)
            rings.append((ring, list(ring.events())))
        except ValueError:
            unreadable.append(path.name)
    rings.sort(key=lambda ring: min((event[4] for event in ring[1]), default=0.0))
    begins = [event[4] for _, events in rings for event in events]
    ends = [event[5] for _, events in rings for event in events]
    zero = min(begins, default=0.0)
    written = list(_events(rings, zero))
    return Merged(
        document(written),
        processes=len({ring.about["pid"] for ring, _ in rings}),
        spans=len(begins),
        seconds=max(ends, default=0.0) - zero,
        lost=sum(ring.lost for ring, _ in rings),
        damaged=sum(ring.damaged for ring, _ in rings),
        clocks=len({ring.about.get("boot", "") for ring, _ in rings}),
        unreadable=unreadable,
    )


def _events(rings: Sequence[tuple[Ring, list[Any]]], zero: float) -> Iterator[Event]:
    ways = Ways()
    for place, (ring, events) in enumerate(rings):
        process = _Process(ring, events, place, zero)
        for event in process.events():
            yield event
            ways.add(process.owner, event)
    yield from ways.arrows()


class _Process:
    """The tracks of one process: its threads first, in the order of an output's way."""

    def __init__(self, ring: Ring, events: list[Any], place: int, zero: float) -> None:
        self._about = ring.about
        self._pid = int(ring.about["pid"])
        self._rank: int | None = ring.about.get("rank")
        self._place = place
        self._zero = zero
        self._by_track: dict[tuple[Any, ...], list[Any]] = {}
        for event in sorted(events, key=lambda event: (event[4], -event[5])):
            self._by_track.setdefault(tuple(event[1][:2]), []).append(event)

    @property
    def owner(self) -> int:
        """The process whose executor made the outputs: a worker's are its parent's."""
        return self._pid if self._rank is None else int(self._about.get("parent", self._pid))

    def events(self) -> Iterator[Event]:
        """Yield the names of the tracks, and what is on them."""
        yield from name_process(self._pid, self._name(), self._place)
        ordered = sorted(self._by_track.items(), key=lambda item: _order(*item))
        for number, (key, events) in enumerate(ordered, start=1):
            track = (self._pid, number)
            yield from name_track(track, _title(key, events), number)
            yield from self._spans(track, key, events)

    def _spans(self, track: Track, key: tuple[Any, ...], events: list[Any]) -> Iterator[Event]:
        lanes = Lanes() if key[0] == "d" else None  # threads nest by themselves
        for _, _, name, category, begin, end, args in events:
            begin, end = begin - self._zero, end - self._zero
            if lanes is not None:
                begin, end = lanes.fit(track, begin, end)
            yield span(track, name, category, begin, end, args)

    def _name(self) -> str:
        if self._rank is not None:
            return f"worker {self._rank}"
        return Path((self._about.get("command") or [""])[0]).name or "python"


def _title(key: tuple[Any, ...], events: list[Any]) -> str:
    if key[0] == "t":
        name = str(events[0][1][2])
        roles = [role for role in _PLACES if role in _roles(events)]
        return f"{name}: {', '.join(roles)}" if roles else name
    clocks = sorted({event[6].get("clock", "host") for event in events})
    return f"{key[1]} ({' and '.join(_CLOCKS[clock] for clock in clocks)})"


def _order(key: tuple[Any, ...], events: list[Any]) -> tuple[int, str]:
    """Return where a track stands: who starts the work, the device, and who waits for it."""
    if key[0] == "d":
        return 2, str(key[1])
    first = min((_PLACES.index(role) for role in _roles(events)), default=len(_PLACES))
    return (0 if first < 2 else 3 + first), str(key[1])


def _roles(events: list[Any]) -> set[str]:
    words = {str(event[3]).split()[0] for event in events}
    return {_ROLES[word] for word in words if word in _ROLES}
