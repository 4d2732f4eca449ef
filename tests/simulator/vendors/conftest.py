"""One process for each simulated name, run when a test first asks for it; workers share it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def run_checks(name: str, answer: Path) -> None:
    """Write what the process of `name` printed, or why it failed, to the file `answer`."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("OMNI_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulator.vendors.run_checks", name],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=280,
    )
    failed = json.dumps({"failed": done.stderr})
    answer.write_text(failed if done.returncode else done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Any]:
    """Return a function of a name and a part: "checks" or "surface"."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def ask(name: str, part: str) -> Any:
        answer = folder / f"simulated-{name}.json"
        with open(answer.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not answer.exists():
                run_checks(name, answer)
        found = json.loads(answer.read_text())
        if "skip" in found:
            if os.environ.get("CI", "").lower() in {"1", "true"}:
                pytest.fail(f"simulated: {found['skip']}")
            pytest.skip(f"simulated: {found['skip']}")
        assert part in found, found.get("failed")
        return found[part]

    return ask
