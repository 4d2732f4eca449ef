"""The support matrix says what the reports say, and the pages have it as it is made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omni_platforms.platform.plugin_entries import find_entries
from tests.docs.pages import ROOT
from tools import support_matrix as made

KEPT = made.read_kept()


def report(*rows: tuple[str, str, str], mode: str = "simulated", name: str = "npu") -> made.Summary:
    """A report whose rows are `(file, outcome, reason)`."""
    return {
        "platform": name,
        "mode": mode,
        "device": "a device",
        "suite_version": "1.0",
        "tier_certified": "T1",
        "versions": {"torch": "2.13.0+cpu"},
        "started": "2026-11-30T17:00:00+00:00",
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


def test_hardware_is_kept_rather_than_a_simulated_device() -> None:
    real = report(("a.py", "passed", ""), mode="hardware")
    simulated = report(("a.py", "failed", ""))
    for kept in (made.taken_in({}, [real, simulated]), made.taken_in({}, [simulated, real])):
        assert kept["npu"]["mode"] == "hardware"
    assert made.taken_in({}, [simulated])["npu"]["mode"] == "simulated"


def test_the_pages_have_the_tables_as_they_are_made() -> None:
    for page, text in made.pages(KEPT).items():
        assert page.read_text(encoding="utf-8") == text, f"{page}: run tools/support_matrix.py"


def test_a_page_that_was_edited_by_hand_would_be_seen() -> None:
    text = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    edited = text.replace("| `rocm` | - | not run |", "| `rocm` | T5 | hardware |")
    assert edited != text
    assert made.replaced(edited, "platforms", made.platforms(KEPT)) == text


def test_what_is_kept_of_hardware_is_what_its_report_says() -> None:
    for name in [name for name, kept in KEPT.items() if kept["mode"] == "hardware"]:
        files = sorted((ROOT / "docs" / "conformance").glob(f"{name}-*.json"))
        assert files or name == "cpu"
        for file in files:
            full: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            assert KEPT[name] == made.summarize(full), f"run tools/support_matrix.py {file}"


def test_every_plugin_and_every_file_of_the_suite_has_its_place() -> None:
    assert set(made.PLATFORMS) - {"cpu"} == set(find_entries()) - {"sim"}
    known = {file for files in made.TOPICS.values() for file in files} | {"test_declared.py"}
    suite = ROOT / "omni_platforms" / "conformance" / "suite"
    assert known == {file.name for file in suite.glob("test_*.py")}
