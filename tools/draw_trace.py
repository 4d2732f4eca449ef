"""Draw a stretch of a trace as a picture, for the documentation.

    python tools/draw_trace.py trace.json picture.png --begin 1200 --end 1500

The tracks stand as in Perfetto, a box a span, with the arrows of one output. Times in milliseconds
from the trace's first event. Needs matplotlib, which the extra `demo` installs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.patches import ConnectionPatch, Rectangle

_COLOURS = {
    "submit": "#2563eb",
    "forward": "#0f766e",
    "copy": "#d97706",
    "deliver": "#7c3aed",
    "on_host": "#7c3aed",
    "receive": "#64748b",
    "result": "#cbd5e1",
}
_TEXT_SHARE = 0.012  # of the width: the least that has room for a letter


def draw(events: list[Mapping[str, Any]], target: Path, begin: float, end: float, way: str) -> None:
    """Draw what happened between two moments, in milliseconds; `way` is whose arrows are drawn."""
    tracks = _tracks(events)
    rows = {track: row for row, (track, _, _) in enumerate(tracks)}
    figure, axes = pyplot.subplots(figsize=(10.5, 0.4 * len(tracks) + 0.9), dpi=130)
    for event in events:
        if event["ph"] == "X":
            _draw_span(axes, event, rows[event["pid"], event["tid"]], begin, end)
    _draw_way(axes, events, rows, way)
    for row, (_, process, name) in enumerate(tracks):
        axes.text(-0.005, row, name, transform=axes.get_yaxis_transform(), ha="right", va="center")
        if row == 0 or tracks[row - 1][1] != process:
            axes.axhline(row - 0.5, color="#94a3b8", linewidth=0.8)
            axes.text(
                -0.53,
                row,
                process,
                transform=axes.get_yaxis_transform(),
                va="center",
                weight="bold",
            )
    axes.set(xlim=(begin, end), ylim=(len(tracks) - 0.4, -0.6), yticks=[], xlabel="ms")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.subplots_adjust(left=0.355, right=0.98, top=0.99, bottom=0.12)
    figure.savefig(target)


def _tracks(events: list[Mapping[str, Any]]) -> list[tuple[tuple[int, int], str, str]]:
    """Return each track with the names of its process and its own, from top to bottom."""
    about: dict[str, dict[tuple[int, int], Any]] = {}
    for event in events:
        if event["ph"] == "M":
            value = next(iter(event["args"].values()))
            about.setdefault(event["name"], {})[event["pid"], event["tid"]] = value
    places, names = about["process_sort_index"], about["thread_name"]
    ordered = sorted(names, key=lambda track: (places[track[0], 0], track[1]))
    return [(track, about["process_name"][track[0], 0], names[track]) for track in ordered]


def _draw_span(axes: Any, event: Mapping[str, Any], row: int, begin: float, end: float) -> None:
    least = (end - begin) / 400  # what can be seen
    start, length = event["ts"] / 1e3, max(event["dur"] / 1e3, least)
    colour = _COLOURS[event["cat"].split()[0]]
    axes.add_patch(Rectangle((start, row - 0.36), length, 0.72, facecolor=colour, edgecolor="none"))
    if length > 8 * least:  # its neighbour on the track may have the same colour
        axes.plot([start, start], [row - 0.36, row + 0.36], color="white", linewidth=0.8)
    label = event["name"].removeprefix("receive ")
    left, right = max(start, begin), min(start + length, end)
    if right - left > _TEXT_SHARE * (end - begin) * 0.6 * len(label):
        dark = "#0f172a" if event["cat"] == "result" else "white"
        middle = (left + right) / 2
        axes.text(middle, row, label, color=dark, ha="center", va="center", fontsize=8)


def _draw_way(axes: Any, events: list[Mapping[str, Any]], rows: Any, way: str) -> None:
    """Draw the arrows between the spans of one output."""
    own = [e for e in events if e["ph"] == "X" and e["name"].split()[-1] == way]
    ends: dict[int, Any] = {}
    for event in events:
        at = event["ts"] / 1e3, rows.get((event["pid"], event["tid"]), 0)
        if event["ph"] == "s" and any(_holds(span, event) for span in own):
            ends[event["id"]] = at
        elif event["ph"] == "f" and event["id"] in ends:
            source = ends[event["id"]]
            style = {"arrowstyle": "-|>", "color": "#dc2626", "linewidth": 1.1, "shrinkB": 0}
            axes.add_patch(ConnectionPatch(source, at, "data", mutation_scale=9, **style))


def _holds(span: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    same = (span["pid"], span["tid"]) == (event["pid"], event["tid"])
    return same and span["ts"] <= event["ts"] <= span["ts"] + span["dur"]


def main() -> None:
    """Draw what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--begin", type=float, default=0.0)
    parser.add_argument("--end", type=float, required=True)
    parser.add_argument("--way", default="", help="whose arrows to draw, such as r7")
    given = parser.parse_args()
    events = json.loads(given.trace.read_text())["traceEvents"]
    draw(events, given.picture, given.begin, given.end, given.way)


if __name__ == "__main__":
    main()
