"""Every planted wait of a 50-step loop is found, at its line and as often, and none is invented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_platforms.audit.kinds import Kind
from omni_platforms.platform.cpu import CpuPlatform
from tests.audit import checks, toy_loop, vendor_checks
from tests.simulated import NAME

STEPS = 50
ROOT = Path(__file__).parents[2]


def test_the_loop_plants_every_kind() -> None:
    planted = {kind for _, kind in toy_loop.expected(device=True, full=True)}
    assert planted == {kind.value for kind in Kind} - {"vendor", "h2d_pageable_async"}


def test_the_documentation_names_every_kind() -> None:
    text = (ROOT / "docs" / "audit.md").read_text()
    assert [kind.value for kind in Kind if f"`{kind.value}`" not in text] == []


def test_what_would_wait_on_a_machine_without_an_accelerator() -> None:
    report = checks.audit_the_loop(CpuPlatform(), "cpu", STEPS)
    found = {key: n for key, n in checks.found(report).items() if n >= 1}
    assert found == toy_loop.expected(device=False)
    assert report.mode == "cpu-as-device"
    assert any("would wait" in note for note in report.notes)
    planted = {kind for _, kind in toy_loop.expected(device=False)}
    assert planted == set(report.covered_kinds)


def test_what_waits_on_a_simulated_device(sim) -> None:
    report = checks.audit_the_loop(sim.platform, NAME, STEPS)
    assert checks.found(report) == toy_loop.expected(device=True)
    assert report.mode == "device"
    assert all(site.blocked_s > 0 for site in report.sites)
    assert all(site.idle_s is None for site in report.sites)
    assert {site.kind for site in report.sites} == set(report.covered_kinds)


@pytest.mark.parametrize("detail", ["counts", "full"])
def test_the_simulators_own_count_of_waits_agrees(sim, detail: str) -> None:
    toy_loop.Loop(NAME).step(0)
    vendor_checks.check(sim, sim.platform, NAME, detail)


@pytest.mark.simulated
@pytest.mark.parametrize("name", ["npu", "xpu"])
def test_what_waits_on_each_vendors_simulated_device(name: str) -> None:
    """With detail="full"; the simulator's own count of the thread's waits agrees.

    On musa the loop runs as a program: see test_command.py.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.audit.vendor_checks", name],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "found it all\n", done.stdout + done.stderr
