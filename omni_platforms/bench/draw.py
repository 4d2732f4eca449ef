"""One panel as a picture: a dot a way, with its 10th and 90th percentile. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from omni_platforms.bench.panels import Dot, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

# A palette that colour-blind people can tell apart (Okabe and Ito, 2008), without its yellow.
_COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#666666")
_MARKERS = "osD^vPX*"
_TITLE_LETTERS = 88  # a line of them
_DENSE = 200.0  # an axis that spans less has room for a mark at 2 and 5 of each decade
_ONLY = ("#0072B2", "o")
_MISSED = "#c00000"
_AIM = "#c00000"
_DOT_IN = 0.15  # of a line's height, for each way
_LINE_IN = 0.14
_AROUND_IN = 1.25  # title, axis
_LEGEND_IN = 0.2

Styles = Mapping[str, "tuple[str, str]"]
"""The colour and the mark of each way."""


def height(panel: Panel) -> float:
    """Return how high a panel's picture should be, in inches."""
    dots = sum(len(line.dots) for line in panel.lines)
    legend = 0 if _one_each(panel) else _LEGEND_IN * (len(panel.ways) + 1) // 2
    return _AROUND_IN + legend + _LINE_IN * len(panel.lines) + _DOT_IN * dots


def _one_each(panel: Panel) -> bool:
    """Whether each line is one way, so that its label says all."""
    return all(len(line.dots) == 1 for line in panel.lines)


def styles(found: Sequence[Panel], benchmark: str) -> Styles:
    """Return a colour and a mark for each way, the same in all panels of a benchmark."""
    panels = [panel for panel in found if panel.benchmark == benchmark and not _one_each(panel)]
    ways = dict.fromkeys(way for panel in panels for way in panel.ways)
    return {
        way: (_COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)])
        for number, way in enumerate(ways)
    }


def draw(figure: FigureBase, panel: Panel, ways: Styles, title: str | None = None) -> None:
    """Draw a panel over a whole figure, or part of one, with the `styles` of its ways."""
    axes: Axes = figure.subplots()
    places: list[float] = []
    below = 0.0
    for line in panel.lines:
        depth = _LINE_IN + _DOT_IN * len(line.dots)
        places.append(below + depth / 2)
        _draw_line(axes, panel, line.dots, below + _LINE_IN / 2, ways)
        below += depth
        axes.axhline(below, color="#e4e4e4", linewidth=0.8, zorder=0)
    axes.set_ylim(below, 0)
    axes.set_yticks(places, [line.label for line in panel.lines], fontsize=8)
    axes.tick_params(axis="y", length=0)
    _draw_axis(axes, panel)
    if title is not None:
        text = fill(title, _TITLE_LETTERS)
        figure.suptitle(text, x=0.01, ha="left", fontsize=9, fontweight="bold")
    _draw_legend(figure, panel, ways)


def _draw_line(axes: Axes, panel: Panel, dots: Sequence[Dot], top: float, ways: Styles) -> None:
    for number, dot in enumerate(dots):
        place = top + _DOT_IN * (number + 0.5)
        colour, mark = _ONLY if _one_each(panel) else ways[dot.way]
        axes.plot([dot.low, dot.high], [place, place], color=colour, linewidth=1.2, alpha=0.6)
        axes.plot([dot.value], [place], mark, color=colour, markersize=5)
        if dot.target is not None:
            axes.plot([dot.target], [place], "|", color=_AIM, markersize=9, zorder=1)
        axes.annotate(
            panel.text(dot.value) + (" missed" if dot.met is False else ""),
            (max(dot.high, dot.value), place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
            color=_MISSED if dot.met is False else "#444444",
        )


def _draw_axis(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if panel.unit == "ratio":
        axes.axvline(1, color="#888888", linewidth=1, zorder=0)
    if panel.logarithmic:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        marks = (1.0, 2.0, 5.0) if high / low < _DENSE else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=marks, numticks=9))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
        if panel.unit == "s":
            axes.set_xlim(left=0)
    mark = panel.text if panel.unit == "s" else "{:g}".format
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: mark(value)))
    # Room for the numbers behind the last dots.
    low, high = axes.get_xlim()
    room = (high / low) ** 0.12 if panel.logarithmic else 1 + 0.12 * (high - low) / high
    axes.set_xlim(low, high * room)
    axes.grid(axis="x", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_xlabel(panel.axis, fontsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_legend(figure: FigureBase, panel: Panel, ways: Styles) -> None:
    """Say which mark is which way, below the axis, where the labels do not say it."""
    from matplotlib.lines import Line2D

    handles = []
    if not _one_each(panel):
        for way in panel.ways:
            colour, mark = ways[way]
            handles.append(Line2D([], [], color=colour, marker=mark, markersize=5, label=way))
    if any(dot.target is not None for line in panel.lines for dot in line.dots):
        handles.append(
            Line2D([], [], color=_AIM, marker="|", linestyle="", markersize=9, label="target")
        )
    if handles:
        figure.legend(
            handles=handles, loc="outside lower center", ncols=2, fontsize=7.5, frameon=False
        )
