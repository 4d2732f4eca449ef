"""Which files to restore: those named, those in folders named, or the shipped ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from omni_platforms.errors import DemoError

SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff", ".bmp", ".ppm", ".pgm"}
)
_KINDS = ", ".join(f"*{suffix}" for suffix in sorted(SUFFIXES))
_SHIPPED = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg")


@dataclass(frozen=True)
class Found:
    """A file to read, or with `error` a folder that gives none."""

    path: Path
    error: DemoError | None = None


def find_photos(arguments: Iterable[Path]) -> list[Found]:
    """Return the files to read, in order, with an error in the place of each folder without any.

    A folder gives its pictures by suffix, sorted by name, not those of folders
    in it. A file that comes twice is returned once. Files are not opened.
    """
    found: dict[Path, Found] = {}
    for argument in arguments:
        for entry in _expand(argument):
            found.setdefault(entry.path.absolute(), entry)
    return list(found.values())


def shipped_photos() -> list[Path]:
    """Return the photographs in scikit-image's wheel, without importing it (which is slow).

    Raises `DemoError` when they are not installed.
    """
    spec = find_spec("skimage")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    photos = [Path(folder, "data", name) for folder in folders for name in _SHIPPED]
    present = [photo for photo in photos if photo.is_file()]
    if not present:
        raise DemoError(
            "no photographs were named, and scikit-image, whose photographs the demo uses "
            "then, is not installed: name a photo or a folder, or run "
            "pip install 'omni-platforms[demo]'"
        )
    return present


def _expand(argument: Path) -> list[Found]:
    if not argument.is_dir():
        return [Found(argument)]
    try:
        entries = sorted(argument.iterdir())
    except OSError as error:
        reason = f"{argument}: cannot be listed ({error.strerror}); check its permissions"
        return [Found(argument, DemoError(reason))]
    photos = [Found(entry) for entry in entries if entry.suffix.lower() in SUFFIXES]
    if photos:
        return photos
    reason = f"{argument}: no photographs in this folder; put some there, named {_KINDS}"
    return [Found(argument, DemoError(reason))]
