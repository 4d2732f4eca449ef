"""Two reports compared: every difference is found, and which way it went."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from omni_platforms.conformance.compare import compare
from omni_platforms.conformance.record import Mode, Outcome, Report
from omni_platforms.conformance.write import write_report
from tests.conformance.reports import MIXED, row
from tests.conformance.test_record import REPORTS
from tests.fake_plugins import run_cli

A = replace(MIXED, rows=[row("a", "T0", Outcome.PASSED), row("b", "T1", Outcome.PASSED)])


def with_b(outcome: Outcome) -> Report:
    return replace(A, rows=[A.rows[0], row("b", "T1", outcome, reason="because")])


@given(REPORTS)
@settings(max_examples=25, deadline=None)
def test_a_report_does_not_differ_from_itself(report: Report) -> None:
    found = compare(report, report)
    assert (found.changes, dict(found.notes), found.worse) == ((), {}, False)


@given(REPORTS, REPORTS)
@settings(max_examples=50, deadline=None)
def test_every_difference_is_one_change_and_none_else(before: Report, after: Report) -> None:
    found = compare(before, after)
    old = {(r.id, r.outcome) for r in before.rows}
    new = {(r.id, r.outcome) for r in after.rows}
    assert sorted(c.id for c in found.changes) == sorted({id_ for id_, _ in old ^ new})
    back = {c.id: c for c in compare(after, before).changes}
    for change in found.changes:
        assert (change.before, change.after) == (back[change.id].after, back[change.id].before)
        if change.kind == "better":
            assert back[change.id].kind == "worse"


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.FAILED, "worse"),
        (Outcome.ERROR, "worse"),
        (Outcome.BLOCKED, "worse"),
        (Outcome.KNOWN, "worse"),
        (Outcome.STALE, "worse"),
        (Outcome.SKIPPED, "other"),
    ],
)
def test_which_way_a_test_went(outcome: Outcome, kind: str) -> None:
    (change,) = compare(A, with_b(outcome)).changes
    assert (change.kind, change.reason) == (kind, "because")
    (back,) = compare(with_b(outcome), A).changes
    assert back.kind == ("better" if kind == "worse" else "other")


def test_a_test_that_the_same_suite_lost_is_worse_and_of_another_suite_is_not() -> None:
    shorter = replace(A, rows=A.rows[:1])
    assert [c.kind for c in compare(A, shorter).changes] == ["worse"]
    other = replace(shorter, suite_version="9")
    assert [c.kind for c in compare(A, other).changes] == ["removed"]
    assert compare(A, other).worse  # it certifies less
    part = replace(shorter, tiers=("T0",))
    assert not compare(A, part).worse
    assert [c.kind for c in compare(shorter, A).changes] == ["added"]


def test_a_tier_that_nothing_applies_to_any_more_is_worse() -> None:
    found = compare(A, with_b(Outcome.SKIPPED))
    assert found.worse
    assert found.to_json()["tier_certified"] == {"before": "T1", "after": "T0"}


def test_what_else_differs_is_said() -> None:
    other = replace(A, mode=Mode.HARDWARE, versions={"torch": "2.14.0"}, tier_declared=None)
    assert compare(A, other).notes == {
        "mode": ("simulated", "hardware"),
        "tier_declared": ("T4", "none"),
        "version of driver": ("7", "none"),
        "version of torch": ("2.13.0", "2.14.0"),
    }


def test_the_command(tmp_path: Path) -> None:
    write_report(A, tmp_path / "a")
    write_report(with_b(Outcome.FAILED), tmp_path / "b")
    files = [str(tmp_path / "a"), str(tmp_path / "b" / "conformance.json")]
    worse = run_cli("diff", *files)
    assert worse.returncode == 1
    assert "worse" in worse.stdout
    assert "passed" in worse.stdout
    better = run_cli("diff", *reversed(files), "--json")
    assert better.returncode == 0, better.stderr
    assert json.loads(better.stdout)["changes"][0]["kind"] == "better"
    missing = run_cli("diff", str(tmp_path / "c"), files[1], "--json")
    assert missing.returncode == 1
    assert missing.stdout == ""
    assert "is not a conformance report" in missing.stderr
    assert run_cli("diff", files[0]).returncode == 2
