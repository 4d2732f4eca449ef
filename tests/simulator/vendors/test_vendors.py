"""Every name's checks, each name in a process of its own; see `run_checks.py`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.simulator.vendors.run_checks import MODULES, checks_of

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.simulated, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("name", "check"), [(name, check) for name in MODULES for check, _ in checks_of(name)]
)
def test_a_simulated_vendor(outcome: Callable[[str, str], Any], name: str, check: str) -> None:
    found = outcome(name, "checks")
    assert found[check] is None, found[check]


def refusals(code: str) -> str:
    head = """
import torch
from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator import simulate
def refuse(name):
    try:
        simulate(name)
    except SimulatorStateError as error:
        print(error)
"""
    arguments = [sys.executable, "-c", head + code]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_place_that_is_taken_stays_so(simulation: object) -> None:
    said = refusals(
        """
torch._C._has_xpu = True
refuse("xpu")
torch._C._has_xpu = False
torch.utils.rename_privateuse1_backend("npu")
refuse("musa")
refuse("xpu")
"""
    ).splitlines()
    expected = ["was built with XPU", "taken by 'npu'", "one accelerator a process"]
    assert all(part in line for part, line in zip(expected, said, strict=True)), said


def test_xpu_comes_before_torch_looks_for_an_accelerator(simulation: object) -> None:
    said = refusals("torch.accelerator.device_count()\nrefuse('xpu')")
    assert "first thing after torch is imported" in said
