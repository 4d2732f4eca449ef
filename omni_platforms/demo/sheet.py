"""The before/after sheet: a row a photo, with a magnified detail in each picture."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omni_platforms.demo.detail import detail_box
from omni_platforms.demo.noise import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

MOST_ROWS = 12
_PANEL = 480
_GAP = 24
_TITLE = 92
_CAPTION = 58
_DETAIL = 52
_MAGNIFY = 3
_PAPER, _INK, _FAINT, _GAIN = "#ffffff", "#16181d", "#6b7280", "#0f766e"


@dataclass(frozen=True)
class Panel:
    """One picture of a row: uint8 pixels, what it is, and its figure ("" for none)."""

    pixels: Pixels
    title: str
    figure: str = ""


@dataclass(frozen=True)
class Row:
    """One photo: its name and its pictures, the original first."""

    name: str
    panels: Sequence[Panel]


def draw_sheet(rows: Sequence[Callable[[], Row]], title: str, subtitle: str) -> bytes:
    """Return the sheet as a PNG file.

    Each row is made when it is drawn and then dropped, so that memory holds
    one photo at a time; at most `MOST_ROWS` are drawn, and the subtitle says so.
    """
    from PIL import Image

    if len(rows) > MOST_ROWS:
        subtitle = f"{subtitle}; the first {MOST_ROWS} of {len(rows)} photos"
    strips = [_draw_row(make()) for make in rows[:MOST_ROWS]]
    width = max(strip.width for strip in strips)
    sheet = Image.new("RGB", (width, _TITLE + sum(strip.height for strip in strips)), _PAPER)
    _write_title(sheet, title, subtitle)
    top = _TITLE
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    file = io.BytesIO()
    sheet.save(file, "PNG")
    return file.getvalue()


def decibels(value: float) -> str:
    """Return a PSNR as text."""
    return "no difference" if math.isinf(value) else f"PSNR {value:.1f} dB"


def _write_title(sheet: Image, title: str, subtitle: str) -> None:
    from PIL import ImageDraw

    draw = ImageDraw.Draw(sheet)
    draw.text((_GAP, 20), title, _INK, _font(26, bold=True))
    draw.text((_GAP, 56), subtitle, _FAINT, _font(16))


def _draw_row(row: Row) -> Image:
    from PIL import Image, ImageDraw

    original = row.panels[0].pixels
    height, width = original.shape[:2]
    scale = _PANEL / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    box = detail_box(original, max(1, round(_DETAIL / max(scale, 1))))
    strip = Image.new(
        "RGB", (_GAP + len(row.panels) * (_PANEL + _GAP), _CAPTION + size[1] + _GAP), _PAPER
    )
    draw = ImageDraw.Draw(strip)
    for number, panel in enumerate(row.panels):
        left = _GAP + number * (_PANEL + _GAP)
        _write_caption(draw, left, row.name if number == 0 else "", panel)
        strip.paste(_draw_panel(panel.pixels, size, box), (left, _CAPTION))
    return strip


def _write_caption(draw: ImageDraw, left: int, name: str, panel: Panel) -> None:
    draw.text((left, 8), panel.title, _INK, _font(18, bold=True))
    draw.text((left, 32), name or panel.figure, _FAINT if name else _GAIN, _font(16))


def _draw_panel(pixels: Pixels, size: tuple[int, int], box: tuple[int, int, int, int]) -> Image:
    """Return the picture at `size` with the part inside `box` magnified in a far corner."""
    from PIL import Image, ImageDraw

    whole = Image.fromarray(pixels)
    panel = whole.resize(size, Image.Resampling.LANCZOS)
    across, along = size[0] / whole.width, size[1] / whole.height
    shown = (box[0] * across, box[1] * along, box[2] * across, box[3] * along)
    draw = ImageDraw.Draw(panel)
    draw.rectangle(shown, outline="white", width=2)
    lens_side = min(_MAGNIFY * _DETAIL, *size)
    lens = whole.crop(box).resize((lens_side, lens_side), Image.Resampling.BICUBIC)
    corner = _far_corner(size, shown, lens_side)
    panel.paste(lens, corner)
    draw.rectangle(
        (*corner, corner[0] + lens_side, corner[1] + lens_side), outline="white", width=3
    )
    return panel


def _far_corner(
    size: tuple[int, int], shown: tuple[float, float, float, float], side: int
) -> tuple[int, int]:
    """Return where to put the magnified part: right or left, bottom or top, away from `shown`."""
    on_left = shown[0] + shown[2] < size[0]
    at_top = shown[1] + shown[3] < size[1]
    margin = 0 if side in size else 8
    right, bottom = size[0] - side - margin, size[1] - side - margin
    return (right if on_left else margin), (bottom if at_top else margin)


def _font(size: int, bold: bool = False) -> FreeTypeFont:
    """Return matplotlib's own font, which is there wherever the demo is."""
    import matplotlib
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", name), size)
