"""The fragments of the changelog have types that exist, and come together at a release."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT

FRAGMENTS = ROOT / "changelog.d"
TYPES = set(
    re.findall(
        r'\[\[tool\.towncrier\.type\]\]\ndirectory = "(\w+)"', (ROOT / "pyproject.toml").read_text()
    )
)
NAME = re.compile(r"\+[a-z0-9-]+\.(\w+)\.md")


def is_fragment(name: str) -> bool:
    """Whether the next release's text would have a file of this name."""
    found = NAME.fullmatch(name)
    return found is not None and found[1] in TYPES


def test_every_fragment_is_one() -> None:
    assert {"feature", "fix", "breaking"} == TYPES
    names = [file.name for file in FRAGMENTS.iterdir() if file.name != ".gitignore"]
    assert [name for name in names if not is_fragment(name)] == []


@pytest.mark.parametrize("name", ["+a.featur.md", "a.md", "+a.feature.txt", "12.fix.md"])
def test_a_file_that_towncrier_passes_over_would_be_seen(name: str) -> None:
    assert not is_fragment(name)


def test_a_release_puts_them_above_what_was_there(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    before = (tmp_path / "CHANGELOG.md").read_text()
    (tmp_path / "changelog.d").mkdir()
    for kind in TYPES:
        (tmp_path / "changelog.d" / f"+it.{kind}.md").write_text(f"Something of type {kind}.\n")
    subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--version", "7.8.9", "--keep"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=60,
    )
    after = (tmp_path / "CHANGELOG.md").read_text()
    assert after.index("## 7.8.9") < after.index("## 0.1.0")
    for kind in TYPES:
        assert f"- Something of type {kind}." in after
    assert set(before.splitlines()) <= set(after.splitlines())
