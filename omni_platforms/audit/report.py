"""What an audit found, as data. Times in seconds, sizes in bytes; `None` is not known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from omni_platforms.audit.advice import pattern_of, suggestion
from omni_platforms.audit.kinds import NOT_WAITS, Kind
from omni_platforms.audit.sites import Site, Sites

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class SiteReport:
    """One site. `count` is of calls that waited, `waits` of the waits inside them."""

    file: str
    line: int
    column: int
    function: str
    source: str
    kind: str
    count: int
    per_step: float | None
    waits: int
    blocked_s: float
    idle_s: float | None
    pattern: str
    hoistable: bool
    value: list[Any]
    suggestion: str
    allowed: str | None
    nbytes: int
    seen_by: list[str]
    callers: list[str]
    path: str

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Spread:
    """How long the steps took, in seconds."""

    median: float
    p10: float
    p90: float
    shortest: float
    longest: float


@dataclass(frozen=True)
class Run:
    """What an audit knows besides its sites."""

    platform: str
    cpu_as_device: bool
    detail: str
    covered: list[Kind]
    step_seconds: list[float]
    requests: int
    wall: float
    outputs: dict[str, list[str]]
    operators: dict[str, int]
    runtime_events: dict[str, int] | None


@dataclass(frozen=True)
class AuditReport:
    """What one audit found. `sites` is sorted by what it costs, the dearest first."""

    platform: str
    mode: str
    """"device", or "cpu-as-device": then it is what would wait."""
    detail: str
    steps: int
    covered_kinds: list[str]
    sites: list[SiteReport]
    allowed: list[SiteReport]
    obstacles: list[SiteReport]
    """Not waits, but in the way of capturing a graph."""
    count: int
    """Calls that waited and were not allowed to: what a budget is compared with."""
    waits: int
    blocked_s: float
    idle_s: float | None
    wall_s: float
    step_s: Spread | None
    outputs: dict[str, list[str]]
    operators: dict[str, int]
    runtime_events: dict[str, int] | None
    notes: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION

    def capture_blockers(self) -> list[SiteReport]:
        """Return the sites that stand in the way of capturing a step as a device graph.

        Sites that were only seen outside steps do not; allowed waits do.
        """
        every = [*self.sites, *self.allowed, *self.obstacles]
        return [site for site in every if not self.steps or site.per_step]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return asdict(self)


def make_report(sites: Sites, run: Run) -> AuditReport:
    """Put an audit's sites and its run together."""
    rows = [_row(site, run) for site in sites]
    rows.sort(key=lambda row: (-(row.idle_s or 0.0), -row.blocked_s, -row.count, row.where))
    waits = [row for row in rows if Kind(row.kind) not in NOT_WAITS]
    counted = [row for row in waits if row.allowed is None]
    idle = [row.idle_s for row in counted if row.idle_s is not None]
    return AuditReport(
        platform=run.platform,
        mode="cpu-as-device" if run.cpu_as_device else "device",
        detail=run.detail,
        steps=len(run.step_seconds),
        covered_kinds=[kind.value for kind in run.covered],
        sites=counted,
        allowed=[row for row in waits if row.allowed is not None],
        obstacles=[row for row in rows if Kind(row.kind) in NOT_WAITS],
        count=sum(row.count for row in counted),
        waits=sum(row.waits for row in counted),
        blocked_s=sum(row.blocked_s for row in counted),
        idle_s=sum(idle) if idle or run.runtime_events else None,
        wall_s=run.wall,
        step_s=_spread(run.step_seconds),
        outputs=run.outputs,
        operators=run.operators,
        runtime_events=run.runtime_events,
        notes=_notes(run, counted),
    )


def _row(site: Site, run: Run) -> SiteReport:
    steps = len(run.step_seconds)
    site.constancy.close()
    hoistable = site.constancy.is_constant(steps, run.requests)
    pattern = pattern_of(site, hoistable)
    place = site.place
    return SiteReport(
        file=place.file,
        line=place.line,
        column=place.column,
        function=place.function,
        source=place.source,
        kind=site.kind.value,
        count=site.count,
        per_step=site.in_steps / steps if steps else None,
        waits=site.waits,
        blocked_s=site.blocked,
        idle_s=site.idle,
        pattern=pattern.value,
        hoistable=hoistable,
        value=[_plain(each) for each in site.constancy.shown] if hoistable else [],
        suggestion=suggestion(site, pattern),
        allowed=site.allowed,
        nbytes=site.nbytes,
        seen_by=sorted(site.sources),
        callers=list(place.callers),
        path=place.path,
    )


def _plain(value: Any) -> Any:
    """Return a value that JSON has: it has no NaN, no infinity and no complex number."""
    finite = isinstance(value, bool | int | str) or (
        isinstance(value, float) and math.isfinite(value)
    )
    return value if finite else str(value)


def _spread(seconds: list[float]) -> Spread | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Spread(
        median=statistics.median(ordered),
        p10=ordered[round(last * 0.1)],
        p90=ordered[round(last * 0.9)],
        shortest=ordered[0],
        longest=ordered[-1],
    )


def _notes(run: Run, rows: Iterable[SiteReport]) -> list[str]:
    notes = ["clean means: none of the covered kinds, on the thread that was audited"]
    if run.cpu_as_device:
        notes.append(
            "no accelerator was used: CPU tensors were taken as device tensors, so this is what "
            "would wait, and times are not those of a device"
        )
    if not run.step_seconds:
        notes.append("no step was marked, so counts a step and hoistable values are not known")
    if run.detail == "counts":
        notes.append("copies inside operators are not covered; detail 'full' covers them")
    idle = [row.idle_s for row in rows]
    if None in idle and not run.cpu_as_device:
        notes.append("idle time of the device was not measured; a profile (--profile) measures it")
    elif idle and run.wall and sum(each or 0.0 for each in idle) < 0.02 * run.wall:
        notes.append(
            "the device was idle for less than 2 % of the time after these waits: removing them "
            "frees the host and need not make this loop faster"
        )
    return notes
