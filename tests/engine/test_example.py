"""The example of a worker class runs as it is, and the page names what there is."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

from omni_platforms import MultiprocExecutor, errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "examples/tiny_diffusion.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMNI_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "a cat: (3, 256, 256), on cpu",
        "left: (3, 256, 256)",
        "right: (3, 256, 256)",
        "seeds: [7]",
    ]
    previews = lines[4:-1]  # those that come behind the last step are not shown
    assert all(re.fullmatch(r"step \d: a preview of \(3, 64, 64\)", line) for line in previews)
    assert lines[-1] == "a dog: (3, 256, 256)"


def test_the_page_names_every_public_method() -> None:
    public = {name for name in vars(MultiprocExecutor) if not name.startswith("_")}
    assert {name for name in public if not re.search(rf"\b{name}\b", PAGE)} == set()


def test_what_the_page_names_exists() -> None:
    for name in re.findall(r"`(\w+Error)`", PAGE):
        assert hasattr(errors, name)
    parameters = inspect.signature(MultiprocExecutor).parameters
    for name in re.findall(r"`(\w+)=", PAGE):
        assert name in parameters
