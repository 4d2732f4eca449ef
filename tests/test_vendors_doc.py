"""docs/vendors.md says what is so: tiers, outcomes, files, and the example of a known failure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from omni_platforms.cli import main
from omni_platforms.conformance.known_failures import read_known_failures
from omni_platforms.conformance.record import (
    FAILURES,
    TIER_TITLES,
    Mode,
    Outcome,
    Row,
    certified_tier,
)
from omni_platforms.conformance.write import write_report
from tests.conformance.reports import MIXED

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "vendors.md").read_text()
LINES = [line for line in TEXT.splitlines() if "|" in line]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES]


def test_the_tiers_are_the_suites() -> None:
    assert {row[0]: row[1] for row in ROWS if row[0] in TIER_TITLES} == TIER_TITLES


def test_the_outcomes_do_what_the_table_says() -> None:
    table = {row[0]: row[2:] for row in ROWS if row[0] in {o.value for o in Outcome}}
    assert set(table) == {outcome.value for outcome in Outcome}
    for outcome in Outcome:
        passed = Row("a", "T0", Outcome.PASSED, Mode.HARDWARE)
        allows = certified_tier([passed, Row("b", "T0", outcome, Mode.HARDWARE)]) == "T0"
        said = ["yes" if fact else "no" for fact in (outcome in FAILURES, allows)]
        assert table[outcome.value] == said, outcome


def test_the_files_are_those_that_are_written(tmp_path: Path) -> None:
    named = {row[0].strip("`") for row in ROWS if row[0].startswith("`conformance.")}
    assert named == {file.name for file in write_report(MIXED, tmp_path)}


def test_the_known_failure_can_be_read(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", TEXT, flags=re.DOTALL)
    file = tmp_path / "conformance.toml"
    file.write_text(block)
    assert len(read_known_failures(file)) == 1


def commands() -> list[list[str]]:
    """The commands of the page that are this program's, without comments."""
    found = re.findall(r"^    omni-platforms ([^#\n]+)", TEXT, flags=re.MULTILINE)
    return [command.split() for command in found]


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_option_is_the_commands(command: list[str]) -> None:
    shown = CliRunner().invoke(main, [command[0], "--help"])
    assert shown.exit_code == 0
    for option in (word for word in command if word.startswith("--")):
        assert option in shown.output
