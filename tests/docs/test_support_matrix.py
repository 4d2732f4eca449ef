"""The support matrix says what the reports say, and the pages have it as it is made."""

from __future__ import annotations

import json

import pytest

from omni_platforms.platform.plugin_entries import find_entries
from tests.docs.pages import ROOT
from tools import support_matrix as made

KEPT = made.read_kept()


def report(
    *rows: tuple[str, str, str], mode: str = "simulated", devices: int = 1, hour: int = 17
) -> made.Summary:
    """A report whose rows are `(file, outcome, reason)`."""
    return {
        "platform": "npu",
        "mode": mode,
        "device": "a device",
        "device_count": devices,
        "suite_version": "1.0",
        "tier_certified": "T1",
        "versions": {"torch": "2.13.0+cpu"},
        "started": f"2026-11-30T{hour}:00:00+00:00",
        "rows": [
            {"id": f"{file}::test_{number}", "outcome": outcome, "reason": reason}
            for number, (file, outcome, reason) in enumerate(rows)
        ],
    }


NOT_DECLARED = ("a.py", "skipped", "not declared: sync_debug")
LONELY = ("a.py", "skipped", "needs 2 devices, and there is 1")
OTHER = ("a.py", "skipped", "its device is the host itself")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a.py", "passed", "")], "simulated"),
        ([("a.py", "passed", ""), NOT_DECLARED], "simulated"),
        ([("a.py", "passed", ""), LONELY], "simulated, one device"),
        ([("a.py", "passed", ""), ("a.py", "failed", "")], "**fails** (simulated)"),
        ([("a.py", "passed", ""), ("a.py", "known", "")], "**fails** (simulated)"),
        ([NOT_DECLARED], "not declared"),
        ([NOT_DECLARED, OTHER], "not declared"),
        ([NOT_DECLARED, LONELY], "not run"),
        ([LONELY], "not run"),
        ([("a.py", "blocked", "")], "not run"),
        ([("b.py", "passed", "")], "not run"),
    ],
)
def test_a_cell_claims_no_more_than_the_report(rows: list[tuple[str, str, str]], said: str) -> None:
    assert made.cell(made.summarize(report(*rows)), ("a.py",)) == said


def test_a_platform_without_a_report_was_not_run() -> None:
    assert made.cell(None, ("a.py",)) == "not run"
    assert "| `rocm` | - | not run |" in made.platforms({})


OLD = report(("a.py", "passed", ""))


@pytest.mark.parametrize(
    "better",
    [
        report(("a.py", "failed", ""), mode="hardware", hour=11),
        report(("a.py", "failed", ""), hour=18),  # later, though it is worse
    ],
)
def test_hardware_is_kept_and_then_the_later_report(better: made.Summary) -> None:
    for order in ([OLD, better], [better, OLD]):
        assert made.taken_in({}, order)["npu"] == made.summarize(better)


def test_of_two_machines_the_one_with_more_devices_is_kept() -> None:
    one = report(("a.py", "passed", ""), mode="hardware", hour=18)
    two = report(("a.py", "passed", ""), mode="hardware", devices=2)
    for order in ([one, two], [two, one]):
        kept = made.taken_in({}, order)
        assert kept["npu"]["device_count"] == 2
        assert "hardware: 2 x a device" in made.platforms(kept)


def test_the_pages_have_the_tables_as_they_are_made() -> None:
    for page, text in made.pages(KEPT).items():
        assert page.read_text(encoding="utf-8") == text, f"{page}: run tools/support_matrix.py"


def test_a_page_that_was_edited_by_hand_would_be_seen() -> None:
    text = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    edited = text.replace("| `rocm` | - | not run |", "| `rocm` | T5 | hardware |")
    assert edited != text
    assert made.replaced(edited, "platforms", made.platforms(KEPT)) == text


def test_what_is_kept_of_hardware_is_what_the_reports_say() -> None:
    files = sorted((ROOT / "docs" / "conformance").glob("*-*.json"))
    reports = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    said = made.taken_in({}, reports)
    assert said
    assert {name: KEPT[name] for name in said} == said, "run make support"


def test_every_plugin_and_every_file_of_the_suite_has_its_place() -> None:
    assert set(made.PLATFORMS) - {"cpu"} == set(find_entries()) - {"sim"}
    known = {file for files in made.TOPICS.values() for file in files} | {"test_declared.py"}
    suite = ROOT / "omni_platforms" / "conformance" / "suite"
    assert known == {file.name for file in suite.glob("test_*.py")}
