"""The suite's plugin: what it runs, blocks and refuses, and how a run ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_platforms.conformance.plugin import NAME as PLUGIN
from omni_platforms.conformance.record import Outcome
from tests.conformance.inline import RIGHT, Run, installed, run_suite

IDENTITY, DEVICES, DECLARED = "test_t0_identity.py", "test_t1_devices.py", "test_declared.py"
# Quick tests of T0 to T3, none of which starts a process.
FILES = (IDENTITY, DEVICES, DECLARED)
DEVICE_NAME = f"{DEVICES}::test_device_name_is_the_model"
# Fails in T1, and nowhere else.
NO_NAME = RIGHT.replace(
    '"vendor": "acme"', '"vendor": "acme", "device_name": lambda self, index=0: ""'
)
NO_VENDOR = RIGHT.replace('"vendor": "acme"', '"vendor": ""')
ABSENT = RIGHT.replace("AVAILABLE", "ABSENT").replace(", 1)", ")")


def known(test: str, exception: str = "AssertionError", more: str = "") -> str:
    return (
        f'[[known]]\ntest = "{test}"\nkind = "notyet"\nexception = "{exception}"\n'
        f'reason = "planted"\nlink = "https://example.org/1"\n{more}\n'
    )


def run(folder: Path, source: str, *options: str, listed: str | None = None) -> Run:
    with installed(folder, source, listed):
        return run_suite(*options, files=FILES)


def outcome_of(run: Run, test: str) -> tuple[Outcome, str]:
    assert run.report is not None
    return next((row.outcome, row.reason) for row in run.report.rows if row.id == test)


def test_a_right_platform_passes_and_says_what_it_ran_on(tmp_path: Path) -> None:
    found = run(tmp_path, RIGHT, "--omni-tier", "T0-T3")
    assert found.status == 0
    assert found.outcomes() == {Outcome.PASSED, Outcome.SKIPPED}
    assert found.report is not None
    assert (found.report.platform, found.report.mode.value) == ("acme", "hardware")
    assert found.report.tiers == ("T0", "T1", "T2", "T3")
    assert found.report.versions["torch"]
    row = next(row for row in found.report.rows if row.id == DEVICE_NAME)
    assert row.contract.startswith("`device_name(index)` is the model's name")
    assert row.remedy


def test_a_failed_tier_blocks_the_next_ones_and_not_its_own(tmp_path: Path) -> None:
    found = run(tmp_path, NO_NAME)
    assert found.status == 1
    assert found.outcomes("T0") == {Outcome.PASSED, Outcome.SKIPPED}
    assert {Outcome.PASSED, Outcome.FAILED} <= found.outcomes("T1")
    assert found.outcomes("T2") == found.outcomes("T3") == {Outcome.BLOCKED}
    assert found.report is not None
    assert {row.reason for row in found.report.rows if row.tier == "T3"} == {"T1 failed"}
    assert found.report.tier_certified == "T0"


def test_later_tiers_run_all_the_same_when_asked_for(tmp_path: Path) -> None:
    found = run(tmp_path, NO_NAME, "--omni-keep-going")
    assert found.status == 1
    assert Outcome.BLOCKED not in found.outcomes()


def test_only_the_tiers_asked_for_run_in_order(tmp_path: Path) -> None:
    found = run(tmp_path, RIGHT, "--omni-tier", "t2,T0")
    assert found.report is not None
    tiers = [row.tier for row in found.report.rows]
    assert set(tiers) == {"T0", "T2"}
    assert tiers == sorted(tiers)


@pytest.mark.parametrize("tiers", ["T9", "T3-T1", "", "1"])
def test_tiers_that_do_not_exist_are_refused(tmp_path: Path, tiers: str) -> None:
    assert run(tmp_path, RIGHT, "--omni-tier", tiers).status == pytest.ExitCode.USAGE_ERROR


def test_without_a_device_only_what_needs_none_runs(tmp_path: Path) -> None:
    found = run(tmp_path, ABSENT)
    assert found.status == 0
    assert found.outcomes() == {Outcome.SKIPPED}
    assert outcome_of(found, DEVICE_NAME) == (
        Outcome.SKIPPED,
        "no device: the host, by another name",
    )


def test_a_device_can_be_required(tmp_path: Path) -> None:
    some = ("-k", "a_device_is_there or device_name")
    with installed(tmp_path, ABSENT):
        found = run_suite(*some, files=("test_t0_probe.py", DEVICES))
        assert found.status == 0
        found = run_suite("--require-device", *some, files=("test_t0_probe.py", DEVICES))
    assert found.status == 1
    assert outcome_of(found, "test_t0_probe.py::test_a_device_is_there")[0] is Outcome.FAILED
    assert outcome_of(found, DEVICE_NAME)[0] is Outcome.BLOCKED


def test_a_tier_that_is_claimed_and_not_proved_fails_the_run(tmp_path: Path) -> None:
    """CPU claims T5, and a run of a few files proves no T4."""
    found = run(tmp_path, RIGHT)
    assert found.report is not None
    assert Outcome.FAILED not in found.outcomes()
    assert found.report.tier_declared == "T5"
    assert found.status == 1


# Known failures ---------------------------------------------------------------


def test_a_known_failure_is_no_failure_and_blocks_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, NO_NAME, "--omni-tier", "T0-T3", listed=known(DEVICE_NAME))
    assert outcome_of(found, DEVICE_NAME)[0] is Outcome.KNOWN
    assert "planted" in outcome_of(found, DEVICE_NAME)[1]
    assert Outcome.BLOCKED not in found.outcomes()
    assert found.report is not None
    assert found.report.tier_certified == "T0"


@pytest.mark.parametrize(
    ("source", "listed", "outcome", "why"),
    [
        (RIGHT, known(DEVICE_NAME), Outcome.STALE, "it passes"),
        (NO_NAME, known(DEVICE_NAME, "KeyError"), Outcome.FAILED, "expects KeyError"),
        (NO_NAME, known(DEVICE_NAME, more="until = 2020-02-02"), Outcome.STALE, "2020-02-02"),
        (NO_NAME, known(DEVICE_NAME, more="until = 2999-01-01"), Outcome.KNOWN, "2999"),
    ],
)
def test_the_list_is_strict_both_ways(
    tmp_path: Path, source: str, listed: str, outcome: Outcome, why: str
) -> None:
    found = run(tmp_path, source, "--omni-tier", "T0-T1", listed=listed)
    assert outcome_of(found, DEVICE_NAME)[0] is outcome
    assert why in outcome_of(found, DEVICE_NAME)[1]
    assert found.status == (0 if outcome is Outcome.KNOWN else 1)


def test_an_entry_for_no_test_of_the_suite_is_refused(tmp_path: Path) -> None:
    with installed(tmp_path, RIGHT, known("test_t1_devices.py::test_that_is_gone")):
        assert run_suite("--omni-tier", "T0").status == pytest.ExitCode.USAGE_ERROR


def test_a_list_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path, RIGHT, listed="[[known]]\n").status == pytest.ExitCode.USAGE_ERROR


def test_a_platform_must_be_named() -> None:
    assert run_suite(files=(IDENTITY,), name=None).status == pytest.ExitCode.USAGE_ERROR


# As a command -----------------------------------------------------------------


def pytest_of_the_suite(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", PLUGIN, "-p", "no:cacheprovider",
         "--pyargs", "omni_platforms.conformance", *options],
        capture_output=True, text=True, cwd=cwd, timeout=110,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip


@pytest.mark.slow  # CI runs it by `make conform`
def test_the_cpu_is_certified_to_what_it_declares(tmp_path: Path) -> None:
    """From a folder of its own, as anybody runs it; with the report that is asked for."""
    folder = tmp_path / "report"
    done = pytest_of_the_suite("--omni-platform", "cpu", "--omni-report", str(folder), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((folder / "conformance.json").read_text())
    assert (report["tier_declared"], report["tier_certified"]) == ("T5", "T5")
    assert "certified to T5" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--omni-platform", "nonesuch"), "no plugin offers"),
        (("--omni-platform", "cpu", "-n", "2"), "one process"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_remedy(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = pytest_of_the_suite(*options, cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert words in done.stderr
