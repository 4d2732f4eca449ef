"""Writing the results: restored photos, the sheet, the timeline, the trace."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence

import numpy as np

from omni_platforms.demo.names import OutputFolder, readable
from omni_platforms.demo.noise import Pixels, psnr
from omni_platforms.demo.result import DemoResult, LoadedPhoto
from omni_platforms.demo.sheet import Panel, Row, decibels, draw_sheet
from omni_platforms.demo.timeline import draw_timeline
from omni_platforms.demo.trace import chrome_trace
from omni_platforms.errors import DemoError


def write_results(
    result: DemoResult,
    loaded: Sequence[LoadedPhoto],
    folder: OutputFolder,
    tick: Callable[[], None],
) -> None:
    """Write everything; `tick()` is called once a photo and once for each of the other three.

    A photo that cannot be written becomes its file's error. Raises `DemoError`
    when the sheet, the timeline or the trace cannot be written. Blocks.
    """
    if result.runs is None:
        raise ValueError("nothing was restored, so there is nothing to write")
    pictures = result.runs[0].pictures
    for photo, png in zip(loaded, pictures, strict=True):
        _write_photo(photo, png, result.request.noise, folder)
        tick()
    makers: dict[str, tuple[str, str, Callable[[], bytes]]] = {
        "sheet": ("before-after", ".png", lambda: _sheet(result, loaded, pictures)),
        "timeline": ("timeline", ".png", lambda: _timeline(result)),
        "trace": ("trace", ".json", lambda: _trace(result, loaded)),
    }
    for kind, (stem, suffix, make) in makers.items():
        path = folder.take(stem, suffix)
        folder.write(path, make())
        result.written[kind] = readable(path)
        tick()


def _write_photo(photo: LoadedPhoto, png: bytes, noise: float, folder: OutputFolder) -> None:
    file = photo.file
    if noise > 0:
        original = photo.photo.pixels
        file.psnr_noisy = _finite(psnr(photo.noisy(noise), original))
        file.psnr_restored = _finite(psnr(_decode(png), original))
    path = folder.take(f"{photo.photo.path.stem}-restored", ".png")
    try:
        folder.write(path, png)
    except DemoError as error:
        file.error = readable(str(error))
    else:
        file.output = readable(path)


def _finite(value: float) -> float | None:
    """Return a figure as JSON can hold it."""
    return value if math.isfinite(value) else None


def _decode(png: bytes) -> Pixels:
    from PIL import Image

    return np.array(Image.open(io.BytesIO(png)))


def _sheet(result: DemoResult, loaded: Sequence[LoadedPhoto], pictures: Sequence[bytes]) -> bytes:
    request = result.request
    rows = [
        lambda photo=photo, png=png: _row(photo, png, request.noise)
        for photo, png in zip(loaded, pictures, strict=True)
    ]
    steps = f"{request.steps} steps of edge-preserving diffusion on {_where(result)}"
    added = f"noise of {request.noise:g} added, then " if request.noise else ""
    return draw_sheet(rows, "Before and after", f"{added}{steps}")


def _row(photo: LoadedPhoto, png: bytes, noise: float) -> Row:
    original, restored = photo.photo.pixels, _decode(png)
    name = readable(photo.photo.path.name)
    if not noise:
        return Row(name, [Panel(original, "Original"), Panel(restored, "Smoothed")])
    noisy = photo.noisy(noise)
    before, after = psnr(noisy, original), psnr(restored, original)
    return Row(
        name,
        [
            Panel(original, "Original"),
            Panel(noisy, "Noisy", decibels(before)),
            Panel(restored, "Restored", f"{decibels(after)} ({after - before:+.1f})"),
        ],
    )


def _where(result: DemoResult) -> str:
    name = result.platform.device_name(result.device.index or 0)
    return f"{result.platform.name} ({name})"


def _timeline(result: DemoResult) -> bytes:
    assert result.runs is not None
    return draw_timeline(result.runs, f"Photo restoration on {_where(result)}")


def _trace(result: DemoResult, loaded: Sequence[LoadedPhoto]) -> bytes:
    assert result.runs is not None
    names = [readable(photo.photo.path.name) for photo in loaded] * result.request.repeat
    return json.dumps(chrome_trace(result.runs, names)).encode()
