"""A parent that exits with work in flight: cleanly, at once, and with its worker."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("count", [5, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_exits_with_work_in_flight(tmp_path: Path, count: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.exits", str(tmp_path), str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) == count
    for exit_ in seen:
        got, wanted = exit_["status"]
        assert got == wanted, exit_
        assert not exit_["worker_left"], exit_
        _check_printed(exit_["way"], exit_["printed"])
    assert len(Counter(exit_["way"] for exit_ in seen)) == 5
    # A busy machine holds single ones up. One that waited for the forward would take a minute.
    assert statistics.median(exit_["seconds"] for exit_ in seen) < 15


def _check_printed(way: str, printed: str) -> None:
    """The script's own error is all that may be printed."""
    own = {"fails": "KeyError: 'the parent fails'", "is_interrupted": "KeyboardInterrupt"}
    if way not in own:
        assert printed == ""
        return
    assert printed.count("Traceback") == 1, printed
    assert printed.rstrip().endswith(own[way]), printed
