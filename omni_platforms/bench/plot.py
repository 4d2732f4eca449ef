"""`write_plot`: a result as pictures. Needs matplotlib, the extra `bench`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omni_platforms.bench.draw import Styles, draw, height, styles
from omni_platforms.bench.page import page
from omni_platforms.bench.panels import Panel, panels
from omni_platforms.bench.report import headline
from omni_platforms.errors import BenchError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES = ("", ".png", ".html")
_WIDTH_IN = 7.5
_HEADLINE_IN = 0.8
_COLUMNS = 2
_DPI = 110


def write_plot(document: dict[str, Any], path: Path) -> list[Path]:
    """Write a result's pictures as PNG and as one HTML page; return the two files.

    `path` is either of them, or their name without a suffix. The page holds the tables and
    the pictures, and loads nothing from anywhere. Raises `BenchError` without matplotlib,
    for another suffix, for a result without rows, and where a file cannot be written.
    """
    check_plot(path)
    found = panels(document["rows"])
    if not found:
        raise BenchError("this result has no rows that a picture could show")
    title = headline(document)
    pictures = [(panel.title, _svg(panel, styles(found, panel.benchmark))) for panel in found]
    files = [path.with_suffix(".png"), path.with_suffix(".html")]
    contents = [_png(found, title), page(document, pictures).encode()]
    for file, content in zip(files, contents, strict=True):
        try:
            file.write_bytes(content)
        except OSError as error:
            raise BenchError(f"{file} cannot be written: {error.strerror}") from error
    return files


def check_plot(path: Path) -> None:
    """Raise `BenchError` where `write_plot` could not write `path` whatever was measured.

    Cheap: call it before minutes of measuring.
    """
    if path.suffix not in _SUFFIXES:
        raise BenchError(f"--plot writes {path.stem}.png and {path.stem}.html, not {path.name}")
    if not path.parent.is_dir():
        raise BenchError(f"--plot writes into {path.parent}, which is no folder: make it first")
    if find_spec("matplotlib") is None:
        raise BenchError(
            "pictures need matplotlib, not installed here: run pip install 'omni-platforms[bench]'"
        )


def _svg(panel: Panel, ways: Styles) -> bytes:
    """Return a panel's picture as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN * 1.3, height(panel)), layout="constrained")
    draw(figure, panel, ways)
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _png(found: Sequence[Panel], title: Sequence[str]) -> bytes:
    """Return all panels as one PNG, in columns of about the same height."""
    from matplotlib.figure import Figure

    columns = _columns(found)
    highest = max(sum(map(height, column)) for column in columns)
    size = (_WIDTH_IN * len(columns), highest + _HEADLINE_IN)
    figure: Figure = Figure(figsize=size, dpi=_DPI, layout="constrained", facecolor="white")
    figure.text(0.01, 1 - 0.1 / size[1], "\n".join(title), va="top", fontsize=9)
    ratios = [_HEADLINE_IN, highest]
    below = figure.subfigures(2, 1, height_ratios=ratios, squeeze=False)[1, 0]
    parts = below.subfigures(1, len(columns), squeeze=False)[0]
    for column, part in zip(columns, parts, strict=True):
        heights = [height(panel) for panel in column]
        rest = max(highest - sum(heights), 0.01)
        places = part.subfigures(len(column) + 1, 1, height_ratios=[*heights, rest])
        for panel, place in zip(column, places, strict=False):
            draw(place, panel, styles(found, panel.benchmark), panel.title)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _columns(found: Sequence[Panel]) -> list[list[Panel]]:
    """Put each panel below those of the column that is the shorter one so far."""
    columns: list[list[Panel]] = [[] for _ in range(min(_COLUMNS, len(found)))]
    for panel in found:
        min(columns, key=lambda column: sum(map(height, column))).append(panel)
    return columns
