"""What one audit has seen at each site. Touched by the audited thread only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType

from omni_platforms.audit.constancy import Constancy
from omni_platforms.audit.frames import Place, Position, place_of, position, user_frame
from omni_platforms.audit.here import Seen
from omni_platforms.audit.kinds import Kind


@dataclass(slots=True)
class Site:
    """One instruction that made the host wait, and how. Times in seconds, sizes in bytes."""

    kind: Kind
    place: Place
    allowed: str | None
    code: CodeType  # kept, because its id is part of the key
    count: int = 0
    in_steps: int = 0
    waits: int = 0
    blocked: float = 0.0
    idle: float | None = None
    nbytes: int = 0
    sources: set[str] = field(default_factory=set)
    seen_last: str | None = None
    constancy: Constancy = field(default_factory=Constancy)


class Sites:
    """All sites of one audit, by code, position, kind and the reason that allows them."""

    def __init__(self) -> None:
        self.quick: dict[tuple[int, int, Kind, str | None], Site] = {}
        """By the code object's id and the instruction, those of the user's own frames."""
        self._found: dict[tuple[int, Position, Kind, str | None], Site] = {}

    def __iter__(self) -> Iterator[Site]:
        return iter(list(self._found.values()))

    def at(self, frame: FrameType, kind: Kind, allowed: str | None) -> Site:
        """Return the site of the user's frame at or above `frame`; a new one at first sight."""
        mine = user_frame(frame)
        quick = (id(mine.f_code), mine.f_lasti, kind, allowed)
        site = self.quick.get(quick)
        if site is None:
            site = self.quick[quick] = self._slowly(mine, kind, allowed)
        return site

    def _slowly(self, frame: FrameType, kind: Kind, allowed: str | None) -> Site:
        """Look a site up by its position: Python may run one call by several instructions."""
        key = (id(frame.f_code), position(frame), kind, allowed)
        site = self._found.get(key)
        if site is None:
            site = self._found[key] = Site(kind, place_of(frame), allowed, frame.f_code)
        return site


def take(site: Site, seen: Seen, waits: int, blocked: float, step: int, request: object) -> int:
    """Add one call to its site, and return how often it waited."""
    if seen.kind is not Kind.H2D_PAGEABLE_ASYNC:
        waits = max(waits, 1)
    site.count += 1
    site.in_steps += step > 0
    site.waits += waits
    site.blocked += blocked
    site.nbytes = max(site.nbytes, seen.value.nbytes)
    site.sources.add(seen.source)
    site.constancy.add(step, request, seen.value.token, seen.value)
    return waits
