"""The marker and the fixture, in test files of somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_platforms.platform.selection import reset_platform

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = "omni_platforms.audit.pytest_plugin"

TESTS = """
import pytest, torch
from omni_platforms.audit import allow_sync

@pytest.mark.max_host_syncs(2)
def test_within():
    torch.ones(1).item()
    with allow_sync(reason="the end"):
        torch.ones(1).tolist()
    torch.ones(1).item()

@pytest.mark.max_host_syncs(1)
def test_beyond():
    for _ in range(3):
        torch.ones(1).item()

def test_fixture(sync_audit):
    torch.ones(1).item()
    assert sync_audit.report().count == 1

@pytest.mark.max_host_syncs(0)
def test_fixture_and_marker(sync_audit):
    with allow_sync(reason="looked at"):
        torch.ones(1).item()
    assert sync_audit.report().count == 0

@pytest.mark.max_host_syncs("many")
def test_wrong():
    pass

@pytest.mark.max_host_syncs(0)
def test_an_error_stays_what_it_is():
    raise LookupError("mine")
"""

UNUSED = """
import sys

def test_inert():
    assert "omni_platforms.audit.pytest_plugin" in sys.modules
    assert "torch" not in sys.modules
"""


def test_marked_tests_are_held_to_their_budget(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    reset_platform()
    pytester.makepyfile(TESTS)
    plugin = [] if sys.modules.get(PLUGIN) else ["-p", PLUGIN]
    result = pytester.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider", *plugin)
    reset_platform()
    result.assert_outcomes(passed=3, failed=3)
    output = str(result.stdout)
    assert "would wait for the device 3 times, at most 1 are allowed" in output
    assert ".py:14: scalar_read x3: torch.ones(1).item()" in output
    assert "takes one whole number" in output
    assert "LookupError: mine" in output


def test_it_does_nothing_where_nobody_uses_it(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNUSED)
    words = ["-q", "-p", "no:cacheprovider", "-p", PLUGIN, "--strict-markers", "test_it.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
