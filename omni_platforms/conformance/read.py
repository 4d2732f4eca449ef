"""Reads a report back from its folder."""

from __future__ import annotations

import json
from pathlib import Path

from omni_platforms.conformance.record import Report, report_from_json
from omni_platforms.conformance.write import JSON_FILE
from omni_platforms.errors import ReportFormatError


def read_report(path: Path) -> Report:
    """Read `conformance.json`, given by its own path or by its folder's.

    Raises `ReportFormatError` for a file that is missing or is no report.
    """
    file = path / JSON_FILE if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ReportFormatError(f"{file} is not a conformance report: {error}") from error
    try:
        return report_from_json(document)
    except ReportFormatError as error:
        raise ReportFormatError(f"{file}: {error}") from error
