"""What each vendor's platform declares; the conformance suite checks that it is true."""

from __future__ import annotations

import subprocess
import sys

import pytest

LACKING = """
import importlib, sys
from omni_platforms.simulator import simulate
name = sys.argv[1]
simulate(name)
from omni_platforms.platform import Capability
platform = importlib.import_module(f"omni_platforms_{name}.plugin").omni_platforms_create(name)
print(*sorted(each.value for each in set(Capability) - platform.capabilities))
"""


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("npu", "device_capability"),
        ("musa", "device_uuid host_memory_stats sync_debug"),
        ("xpu", "device_capability host_memory_stats host_registration sync_debug"),
    ],
)
def test_what_each_platform_lacks(name: str, lacking: str) -> None:
    command = [sys.executable, "-c", LACKING, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == lacking
