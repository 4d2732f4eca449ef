"""A journal that was cut off anywhere still makes a report, and an honest one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_platforms.conformance.record import Outcome, Report
from omni_platforms.conformance.recovery import recover
from omni_platforms.errors import ReportFormatError
from tests.conformance.reports import MIXED

ENDING = "the process was killed by SIGSEGV"


def journal_of(report: Report) -> str:
    """What a run that makes `report` writes, whole."""
    blank = [replace(row, outcome=Outcome.BLOCKED, reason="", detail="") for row in report.rows]
    lines = [json.dumps({"report": replace(report, rows=blank).to_json()})]
    for row in report.rows:
        lines += [json.dumps({"running": row.id}), json.dumps({"row": row.to_json()})]
    return "".join(f"{line}\n" for line in lines)


JOURNAL = journal_of(MIXED)
FIRST_LINE = JOURNAL.index("\n") + 1


@given(st.integers(FIRST_LINE, len(JOURNAL)))
@settings(max_examples=200, deadline=None)
def test_what_had_run_is_kept_and_the_rest_is_said_not_to_have(end: int) -> None:
    written = JOURNAL[:end]
    report = recover(written.splitlines(), ENDING)
    assert report is not None
    assert [row.id for row in report.rows] == [row.id for row in MIXED.rows]
    finished = written.count('{"row"') - (not written.endswith("\n") and last_is_row(written))
    assert list(report.rows[:finished]) == list(MIXED.rows[:finished])
    rest = report.rows[finished:]
    assert [row.outcome for row in rest[1:]] == [Outcome.BLOCKED] * len(rest[1:])
    if rest:
        begun = written.count('{"running"') > finished and complete(written, rest[0].id)
        assert rest[0].outcome is (Outcome.ERROR if begun else Outcome.BLOCKED)
        assert ENDING in rest[0].reason


def last_is_row(written: str) -> bool:
    """Whether the last line, which is not whole, is a row's and does not parse."""
    last = written.splitlines()[-1]
    return last.startswith('{"row"') and not parses(last)


def complete(written: str, running: str) -> bool:
    whole = [json.loads(line) for line in written.splitlines() if parses(line)]
    return any(entry.get("running") == running for entry in whole)


def parses(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def test_a_whole_journal_is_the_report() -> None:
    assert recover(JOURNAL.splitlines(), ENDING) == MIXED


@pytest.mark.parametrize("lines", [[], ["{"], ['{"running": "x"}'], ["7", "null"]])
def test_without_a_plan_there_is_no_report(lines: list[str]) -> None:
    assert recover(lines, ENDING) is None


def test_a_report_with_an_error_certifies_less() -> None:
    cut = JOURNAL.index('{"row"', JOURNAL.index('"test_t1.py::test_memory"}'))
    report = recover(JOURNAL[:cut].splitlines(), ENDING)
    assert report is not None
    assert report.tier_certified == "T0"
    assert not report.ok


def test_a_journal_that_no_run_writes_is_refused() -> None:
    plan = JOURNAL.splitlines()[0]
    with pytest.raises(ReportFormatError):
        recover([plan, json.dumps({"row": {"id": "x"}})], ENDING)
