"""What the demo is asked for, and what became of each file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omni_platforms.demo.names import readable

SEED = 20
"""The noise of photo number n comes from seed SEED + n."""


@dataclass(frozen=True)
class DemoRequest:
    """The command's arguments: files and folders (none: the shipped photos), and settings.

    `noise` is a standard deviation on the scale where white is 1; `longest_side`
    is in pixels, larger photos are shrunk to it.
    """

    arguments: tuple[Path, ...]
    out: Path
    steps: int = 24
    repeat: int = 4
    noise: float = 0.08
    longest_side: int = 1600


@dataclass
class FileResult:
    """What became of one file. `error` is "" when it was restored; PSNR in decibels or `None`."""

    path: str
    error: str = ""
    notes: tuple[str, ...] = ()
    width: int | None = None
    height: int | None = None
    output: str | None = None
    psnr_noisy: float | None = None
    psnr_restored: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the file was restored and written."""
        return not self.error

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with `status` "ok" or "error"."""
        fields = asdict(self)
        return {"path": fields.pop("path"), "status": "ok" if self.ok else "error", **fields}


def failed(path: Path | str, error: Exception) -> FileResult:
    """Return the result of a file that could not be used."""
    return FileResult(readable(path), error=readable(str(error)))
