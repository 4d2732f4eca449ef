"""The executor's races again, on each vendor's simulated device under the vendor's own platform."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RACES = ["test_races.py", "test_company.py"]
# Capturing through torch.accelerator.Graph needs torch.accelerator.synchronize, which MUSA lacks.
GRAPHS = [*RACES, "test_graphs.py"]


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("npu", GRAPHS),
        pytest.param("musa", RACES, marks=pytest.mark.slow),
        pytest.param("xpu", GRAPHS, marks=pytest.mark.slow),
    ],
)
def test_every_race_and_every_protection(name: str, files: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist"]
        + [str(HERE / file) for file in files],
        env=os.environ | {"OMNI_TESTS_SIMULATE": name},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 60, done.stdout
    assert "skipped" not in done.stdout, done.stdout
