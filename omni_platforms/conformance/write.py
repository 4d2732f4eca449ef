"""Writes a report, in every form that it has, into a folder."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from omni_platforms.conformance.junit import junit
from omni_platforms.conformance.markdown import markdown
from omni_platforms.conformance.page import page
from omni_platforms.conformance.record import Report
from omni_platforms.errors import ConformanceSetupError

JSON_FILE = "conformance.json"
_WRITERS = {
    JSON_FILE: lambda report: json.dumps(report.to_json(), indent=2) + "\n",
    "conformance.md": markdown,
    "conformance.xml": junit,
    "conformance.html": page,
}


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the report in every form into `folder`, which is made where it is missing.

    Each file is replaced whole: a reader never sees half of one. Returns the
    files. Raises `ConformanceSetupError` when the folder cannot be written to.
    """
    texts = {name: write(report) for name, write in _WRITERS.items()}
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        return [_replace(folder / name, text) for name, text in texts.items()]


def make_folder(folder: Path) -> None:
    """Make the folder for a report, before a long run, and try to write to it.

    Raises `ConformanceSetupError` when that fails.
    """
    with _named(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConformanceSetupError(
            f"the report cannot be written to {folder}: {error}. Name another folder for it."
        ) from error


def _replace(file: Path, text: str) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return file
