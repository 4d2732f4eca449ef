"""`OutputFolder`: names for results that overwrite neither an input nor each other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from omni_platforms.errors import DemoError

# File systems allow 255 bytes a name, and one letter takes up to four.
_LONGEST_STEM = 50


class OutputFolder:
    """A folder for results, made when missing.

    Files of an earlier run are overwritten, inputs never, under whatever name
    or link they are reached. Raises `DemoError` when it cannot be made.
    """

    def __init__(self, folder: Path, inputs: Iterable[Path]) -> None:
        self.folder = folder
        self._inputs = {identity for path in inputs if (identity := _identity(path))}
        self._taken: set[str] = set()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DemoError(
                f"--out {folder}: cannot be made ({error.strerror}); name a folder that can"
            ) from error

    def take(self, stem: str, suffix: str) -> Path:
        """Return a path for a result: `stem + suffix`, with a number where that is taken."""
        stem = stem[:_LONGEST_STEM]
        for number in itertools.count(1):
            name = f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}"
            path = self.folder / name
            # Some file systems do not tell upper from lower case.
            if name.casefold() not in self._taken and _identity(path) not in self._inputs:
                self._taken.add(name.casefold())
                return path
        raise AssertionError("unreachable: the numbers do not end")

    def write(self, path: Path, data: bytes) -> None:
        """Write one result; blocks. Raises `DemoError` when the folder refuses it."""
        try:
            path.write_bytes(data)
        except OSError as error:
            raise DemoError(
                f"{path}: cannot be written ({error.strerror}); choose another folder with --out"
            ) from error


def readable(path: Path | str) -> str:
    """Return a path as text that can be printed, also when its bytes are no valid text."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from others whatever its name, `None` where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
