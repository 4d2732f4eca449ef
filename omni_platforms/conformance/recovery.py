"""Makes the report of a run that died, from the journal that it kept. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from omni_platforms.conformance.record import (
    Outcome,
    Report,
    Row,
    report_from_json,
    row_from_json,
)


def recover(lines: Iterable[str], ending: str) -> Report | None:
    """Return the report of a run that died, or `None` where it died before its first test.

    The test that was running is an error whose reason is `ending`, which says how
    the run ended; those that had not begun are blocked. A line that was cut off
    by the end is passed over. Raises `ReportFormatError` for what no run writes.
    """
    entries = list(_entries(lines))
    plan = next((entry["report"] for entry in entries if "report" in entry), None)
    if plan is None:
        return None
    planned = report_from_json(plan)
    done = [row_from_json(entry["row"]) for entry in entries if "row" in entry]
    running = next((e["running"] for e in reversed(entries) if "running" in e), None)
    return replace(planned, rows=_completed(planned.rows, done, running, ending))


def _completed(
    planned: Sequence[Row], done: Sequence[Row], running: str | None, ending: str
) -> list[Row]:
    rows = {row.id: row for row in done}
    for row in planned:
        if row.id == running and row.id not in rows:
            rows[row.id] = replace(row, outcome=Outcome.ERROR, reason=ending)
        else:
            rows.setdefault(row.id, replace(row, reason=f"not run: {ending}"))
    return [rows[row.id] for row in planned]


def _entries(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # the end came while it was written
            continue
        if isinstance(entry, dict):
            yield entry
