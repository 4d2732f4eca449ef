"""The example of the documentation finds its bug, and nothing once that is fixed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from omni_platforms.simulator import Simulation

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/find_a_race.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"import runpy; runpy.run_path({EXAMPLE!r}, run_name='__main__')"
    return subprocess.run(  # not as a script: this checkout's package comes first so
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT
    )


def test_the_report_names_the_missing_wait(simulation: Simulation) -> None:
    done = run()
    assert done.returncode == 1, done.stderr
    text = done.stdout
    assert text.startswith("1 of 4 schedules failed, 1 races\nschedule lazy:0.0: AssertionError")
    assert re.search(r"aten.add\S* on stream 0.0 +examples/find_a_race.py:\d+ in scenario", text)
    assert re.search(r"copy to device on stream 0.1 +examples/find_a_race.py:\d+ in start", text)
    assert "Stream 0.1 must wait for stream 0.0" in text


def test_nothing_is_reported_once_it_waits(simulation: Simulation) -> None:
    done = run("--fixed")
    assert (done.returncode, done.stdout) == (0, "0 of 4 schedules failed, 0 races\n"), done.stderr
