"""What a result's pictures show: panels of dots, worked out before anything is drawn. Pure.

A panel compares the ways of a benchmark. Where cases differ in what they compute (`forward_s`),
times say nothing side by side, and the dots are ratios to the panel's base; elsewhere they are
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from omni_platforms.bench.units import case_text, number_text, seconds_text

_IN_TITLE = ("part", "from", "loop", "in_flight", "kernels")
_COMPUTES = "forward_s"
_NO_REQUEST = "bare"  # a bare copy computes nothing: beside requests it only stretches the axis
_LOG_SECONDS = 20.0
_LOG_RATIOS = 4.0

Unit = Literal["s", "ratio"]


@dataclass(frozen=True)
class Dot:
    """One row of the result: its value, its 10th and 90th percentile, its target if it has one."""

    way: str
    value: float
    low: float
    high: float
    target: float | None = None
    met: bool | None = None


@dataclass(frozen=True)
class Line:
    """The dots beside one label."""

    label: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True)
class Panel:
    """Lines of dots on one axis, in seconds or as ratios to `base`."""

    benchmark: str
    title: str
    unit: Unit
    base: str
    lines: tuple[Line, ...]

    @property
    def ways(self) -> list[str]:
        """The ways, in the order of their first dot."""
        return list(dict.fromkeys(dot.way for line in self.lines for dot in line.dots))

    @property
    def axis(self) -> str:
        """What the values are."""
        return "time" if self.unit == "s" else f"times {self.base}"

    @property
    def logarithmic(self) -> bool:
        """Whether the values are too far apart for a plain axis."""
        values = [dot.value for line in self.lines for dot in line.dots if dot.value > 0]
        most = _LOG_SECONDS if self.unit == "s" else _LOG_RATIOS
        return bool(values) and max(values) / min(values) > most

    def text(self, value: float) -> str:
        """Return a value of the axis as people read it."""
        return seconds_text(value) if self.unit == "s" else number_text(value)


def panels(rows: Sequence[dict[str, Any]]) -> list[Panel]:
    """Return the panels of a result's rows, in their order."""
    found: dict[str, Panel] = {}
    for row in rows:
        unit: Unit = "ratio" if _COMPUTES in row["case"] else "s"
        if unit == "ratio" and (row["ratio"] is None or row["way"].startswith(_NO_REQUEST)):
            continue  # the base itself is the line at one
        title, label = _names(row)
        panel = found.get(title) or Panel(row["benchmark"], title, unit, row["base"] or "", ())
        found[title] = replace(panel, lines=_added(panel.lines, label, _dot(row, unit)))
    return [_spread(panel) for panel in found.values()]


def _names(row: dict[str, Any]) -> tuple[str, str]:
    """Return the title of a row's panel and the label of its line."""
    case = row["case"]
    shared = {name: value for name, value in case.items() if name in _IN_TITLE}
    own = {name: value for name, value in case.items() if name not in _IN_TITLE}
    title = f"{row['benchmark']}: {case_text(shared)}" if shared else row["benchmark"]
    return title, case_text(own)


def _dot(row: dict[str, Any], unit: Unit) -> Dot:
    if unit == "s":
        target = row["target"] if row["target_of"].startswith("seconds") else None
        return Dot(row["way"], row["seconds"], row["low"], row["high"], target, row["met"])
    target = row["target"] if row["target_of"].startswith("ratio") else None
    return Dot(row["way"], row["ratio"], row["ratio_low"], row["ratio_high"], target, row["met"])


def _added(lines: tuple[Line, ...], label: str, dot: Dot) -> tuple[Line, ...]:
    for place, line in enumerate(lines):
        if line.label == label:
            changed = Line(label, (*line.dots, dot))
            return (*lines[:place], changed, *lines[place + 1 :])
    return (*lines, Line(label, (dot,)))


def _spread(panel: Panel) -> Panel:
    """Give each way a line of its own where there is only one case."""
    if len(panel.lines) != 1:
        return panel
    (line,) = panel.lines
    title = f"{panel.title}, {line.label}" if line.label else panel.title
    return replace(panel, title=title, lines=tuple(Line(dot.way, (dot,)) for dot in line.dots))
