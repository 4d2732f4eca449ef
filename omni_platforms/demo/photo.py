"""`read_photo`: one file as 8-bit red, green and blue, with notes on what that took."""

from __future__ import annotations

import stat
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omni_platforms.demo.noise import Pixels
from omni_platforms.errors import DemoError

if TYPE_CHECKING:
    from PIL.Image import Image

# Only formats that Pillow decodes itself: others start programs.
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM")
_MOST_PIXELS = 100_000_000
_SMALLEST_SIDE = 8
_EXIF_ORIENTATION = 0x0112
# What Pillow was seen to raise for damaged files.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    OverflowError,
    LookupError,
    TypeError,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True)
class Photo:
    """One photograph: uint8 pixels `[height, width, 3]` and what was done to get them."""

    path: Path
    pixels: Pixels
    notes: tuple[str, ...] = ()


def read_photo(path: Path, longest_side: int) -> Photo:
    """Read, decode and convert one file, shrunk to `longest_side` pixels where it is larger.

    Blocks for the file. Raises `DemoError` with reason and remedy for whatever
    cannot be used; memory is bounded by 100 million pixels.
    """
    _require_file(path)
    notes: list[str] = []
    with warnings.catch_warnings():
        # Sizes are checked here, with a clearer message than Pillow's warnings.
        warnings.simplefilter("ignore")
        try:
            image = _decode(path, longest_side, notes)
            image = _shrink(_to_rgb(image, notes), longest_side, notes)
        except DemoError:
            raise
        except MemoryError as error:
            raise DemoError(f"{path}: too large for the memory of this machine") from error
        except _DAMAGE as error:
            raise DemoError(
                f"{path}: damaged or incomplete ({_reason(error)}); save it again or fetch "
                "a new copy"
            ) from error
    return Photo(path, np.array(image), tuple(notes))


def _require_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise DemoError(f"{path}: not a regular file; name a photo or a folder of photos")
        with path.open("rb"):
            return
    except FileNotFoundError as error:
        raise DemoError(f"{path}: no such file; check the path") from error
    except (OSError, ValueError) as error:
        raise DemoError(
            f"{path}: cannot be read ({_reason(error)}); check its permissions"
        ) from error


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _decode(path: Path, longest_side: int, notes: list[str]) -> Image:
    """Return the first frame, decoded and upright."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=_FORMATS) as image:
            _check_size(path, image.size)
            _note_frames(image, notes)
            size = image.size
            image.draft("RGB", (longest_side, longest_side))  # a large JPEG need not be whole
            image.load()
            if image.size != size:
                notes.append(f"read at {_size(image)} of {size[0]}x{size[1]}")
            return _upright(image, notes)
    except UnidentifiedImageError as error:
        raise DemoError(
            f"{path}: not a picture in a format that the demo reads ({', '.join(_FORMATS)})"
        ) from error
    except Image.DecompressionBombError as error:
        raise _too_large(path, "so many pixels") from error


def _check_size(path: Path, size: tuple[int, int]) -> None:
    width, height = size
    if width * height > _MOST_PIXELS:
        raise _too_large(path, f"{width}x{height} pixels")
    if min(size) < _SMALLEST_SIDE:
        raise DemoError(
            f"{path}: {width}x{height} pixels are too few to restore; each side needs "
            f"{_SMALLEST_SIDE}"
        )


def _too_large(path: Path, what: str) -> DemoError:
    return DemoError(
        f"{path}: {what}, and the demo decodes at most {_MOST_PIXELS // 10**6} million; "
        "shrink it first"
    )


def _size(image: Image) -> str:
    return f"{image.width}x{image.height}"


def _note_frames(image: Image, notes: list[str]) -> None:
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        notes.append(f"first of {frames} frames")


def _upright(image: Image, notes: list[str]) -> Image:
    from PIL import ImageOps

    if image.getexif().get(_EXIF_ORIENTATION, 1) in (2, 3, 4, 5, 6, 7, 8):
        notes.append("turned upright as its EXIF says")
        return ImageOps.exif_transpose(image)
    return image.copy()


def _to_rgb(image: Image, notes: list[str]) -> Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith(("I", "F")):
        return _deep_grey(image, notes)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        return _on_white(image, notes)
    if image.mode == "CMYK":
        notes.append("CMYK converted to RGB without its colour profile")
    elif image.mode == "P":
        notes.append("palette converted to RGB")
    elif image.mode in ("L", "1"):
        notes.append("grey")
    else:
        notes.append(f"{image.mode} converted to RGB")
    return image.convert("RGB")


def _deep_grey(image: Image, notes: list[str]) -> Image:
    """Bring grey with more than 8 bits to 8."""
    from PIL import Image

    values = np.nan_to_num(np.asarray(image, dtype=np.float32))
    low, high = float(values.min()), float(values.max())
    if image.mode.startswith("I") and low >= 0 and high <= 65535:
        notes.append("16-bit grey scaled to 8 bits")
        low, high = 0.0, 65535.0
    else:
        notes.append("deep grey scaled from its own range to 8 bits")
    scaled = (values - low) * (255 / ((high - low) or 1))
    return Image.fromarray(np.rint(scaled).astype(np.uint8)).convert("RGB")


def _on_white(image: Image, notes: list[str]) -> Image:
    from PIL import Image

    notes.append("transparency put on white")
    paint = image.convert("RGBA")
    white = Image.new("RGBA", paint.size, "white")
    return Image.alpha_composite(white, paint).convert("RGB")


def _shrink(image: Image, longest_side: int, notes: list[str]) -> Image:
    from PIL import Image

    scale = longest_side / max(image.size)
    if scale >= 1:
        return image
    width, height = (max(_SMALLEST_SIDE, round(side * scale)) for side in image.size)
    notes.append(f"shrunk from {_size(image)} to {width}x{height}")
    return image.resize((width, height), Image.Resampling.LANCZOS)
