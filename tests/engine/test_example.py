"""The example of a worker class runs as it is, and the page names what there is."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest

from omni_platforms import MultiprocExecutor, errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")


def test_the_example_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    runpy.run_path(str(ROOT / "examples" / "tiny_diffusion.py"), run_name="__main__")
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
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
