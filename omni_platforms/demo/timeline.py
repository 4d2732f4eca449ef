"""The timeline picture: both runs on one time axis, a lane a stage."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omni_platforms.demo.record import RunRecord
from omni_platforms.demo.spans import LANES, Span, gaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_REQUESTS = 12
_COLOURS = {"forward": "#2563eb", "copy": "#f59e0b", "pack": "#10b981", "encode": "#8b5cf6"}
_LABELS = {
    "forward": "forward (the model)",
    "copy": "copy to the host",
    "pack": "pack to 8 bits",
    "encode": "encode as PNG",
}
_IDLE = "#fecaca"
_BAR = 0.78
# Of the axis: narrower stretches would not be seen.
_LEAST_WIDTH = 0.0016
_ROOM_FOR_NUMBER = 0.016


def draw_timeline(runs: Sequence[RunRecord], title: str) -> bytes:
    """Return the picture as a PNG file: the first `MOST_REQUESTS` requests of each run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 7.4), dpi=110, facecolor="white")
    FigureCanvasAgg(figure)
    unit, factor = _unit(max(_length(run) for run in runs))
    axes = [figure.add_subplot(len(runs), 1, number + 1) for number in range(len(runs))]
    longest = max(_length(run) for run in runs) * factor
    for axis, run in zip(axes, runs, strict=True):
        _draw_run(axis, run, factor, longest)
    axes[-1].set_xlabel(f"{unit} since the start of the run")
    _decorate(figure, title, runs)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _shown(run: RunRecord, lane: str) -> list[Span]:
    return [span for span in run.lanes[lane] if span.request < MOST_REQUESTS]


def _length(run: RunRecord) -> float:
    return max(span.end for lane in LANES for span in _shown(run, lane)) - run.start


def _unit(seconds: float) -> tuple[str, float]:
    """Return the axis's unit and how many of it a second has."""
    return ("seconds", 1.0) if seconds >= 2 else ("milliseconds", 1e3)


def _draw_run(axis: Axes, run: RunRecord, factor: float, longest: float) -> None:
    for row, lane in enumerate(LANES):
        for span in _shown(run, lane):
            _draw_span(axis, run, span, row, factor, longest)
    for start, end in gaps(_shown(run, "forward")):
        left, width = (start - run.start) * factor, (end - start) * factor
        axis.broken_barh(
            [(left, width)],
            (-_BAR / 2, _BAR),
            facecolor=_IDLE,
            hatch="////",
            edgecolor="#ef4444",
            linewidth=0,
        )
    axis.set_xlim(0, longest * 1.01)
    axis.set_ylim(len(LANES) - 0.4, -0.6)
    axis.set_yticks(range(len(LANES)), [f"{lane}\n{run.threads[lane]}" for lane in LANES])
    axis.set_title(_heading(run), loc="left", fontsize=11.5, fontweight="bold")
    axis.grid(axis="x", color="#e5e7eb")
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0, labelsize=9)


def _draw_span(
    axis: Axes, run: RunRecord, span: Span, row: int, factor: float, longest: float
) -> None:
    left = (span.start - run.start) * factor
    width = max(span.duration * factor, longest * _LEAST_WIDTH)
    wide = width > longest * _ROOM_FOR_NUMBER
    axis.broken_barh(
        [(left, width)],
        (row - _BAR / 2, _BAR),
        facecolor=_COLOURS[LANES[row]],
        alpha=1.0 if span.request % 2 or not wide else 0.78,
    )
    if wide:
        axis.text(
            left + width / 2,
            row,
            str(span.request + 1),
            ha="center",
            va="center",
            fontsize=8.5,
            color="white",
        )


def _heading(run: RunRecord) -> str:
    how = "one step after the other" if run.name == "blocking" else "through AsyncOutputExecutor"
    return (
        f"{run.name.capitalize()} run, {how}: {run.requests_per_s:.2f} requests a second, "
        f"idle between forwards {run.idle_share:.1%}"
    )


def _decorate(figure: Figure, title: str, runs: Sequence[RunRecord]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=_COLOURS[lane], label=_LABELS[lane]) for lane in LANES]
    handles.append(
        Patch(facecolor=_IDLE, hatch="////", edgecolor="#ef4444", linewidth=0, label="device idle")
    )
    figure.suptitle(title, x=0.015, y=0.975, ha="left", fontsize=14, fontweight="bold")
    figure.text(0.015, 0.915, _subtitle(runs), ha="left", fontsize=10, color="#6b7280")
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False)
    figure.subplots_adjust(left=0.15, right=0.985, top=0.85, bottom=0.13, hspace=0.36)


def _subtitle(runs: Sequence[RunRecord]) -> str:
    count = len(runs[0].digests)
    which = f"the first {MOST_REQUESTS} of {count}" if count > MOST_REQUESTS else f"all {count}"
    return f"Numbers are requests ({which}); both runs on the same time axis."
