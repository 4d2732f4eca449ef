"""The three starts, word by word: every file saved, every command run, from the wheel.

Slow: each takes a minute. Installing this package and its dependencies is left out: the wheel is
there, and this environment's dependencies are lent. What builds an editable install comes from the
package index.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.environments import Environment, build_wheel
from tests.fake_plugins import clean_environment

STARTS = sorted((ROOT / "docs" / "start").glob("*.md"))
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVE = re.compile(r"\bas\s+`([\w.]+)`")

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Save:
    """Save this text under this name."""

    name: str
    text: str


@dataclass(frozen=True)
class Run:
    """Run this command, which ends with this exit status."""

    command: str
    status: int


def steps_of(page: str) -> Iterator[Save | Run]:
    """Yield what a reader of the page does, in order."""
    end = 0
    for fence in _FENCE.finditer(page):
        said, end = page[end : fence.start()], fence.end()
        language, text = fence.groups()
        if language == "console":
            yield from _commands(text)
        else:
            yield Save(_SAVE.findall(said)[-1], text)


def _commands(text: str) -> Iterator[Run]:
    for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        found = re.search(r"  # ends with (\d)$", command.rstrip())
        yield Run(command, int(found[1]) if found else 0)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("environment") / "venv")
    made.install(build_wheel(ROOT, tmp_path_factory.mktemp("wheel")))
    return made


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", STARTS, ids=lambda page: page.stem)
def test_a_start_works_word_by_word(page: Path, environment: Environment, tmp_path: Path) -> None:
    done = 0
    for step in steps_of(page.read_text(encoding="utf-8")):
        if isinstance(step, Save):
            (tmp_path / step.name).write_text(step.text, encoding="utf-8")
        elif step.command.startswith("pip install --editable"):
            environment.pip("install", "--no-deps", "--editable", local(step, tmp_path))
        elif not step.command.startswith(("pip install", "omni-platforms conform acme --require")):
            run(step, environment, tmp_path)
            done += 1
    assert done >= 4


def local(step: Run, folder: Path) -> str:
    """Return the folder that a command installs, without its extras."""
    (name,) = re.findall(r"'\./([\w-]+)\[\w+\]'", step.command)
    return str(folder / name)


def run(step: Run, environment: Environment, folder: Path) -> None:
    (own,) = environment.folder.glob("lib/python*/site-packages")
    variables = clean_environment(own, Path(sysconfig.get_paths()["purelib"]))
    variables["OMP_NUM_THREADS"] = "1"  # threads that spin hold each other up on a busy machine
    variables["PATH"] = f"{environment.folder / 'bin'}:{variables['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", step.command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == step.status, f"{step.command}\n{ended.stdout}\n{ended.stderr}"


def test_a_command_that_ends_otherwise_would_be_seen(
    environment: Environment, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="BROKEN"):
        run(Run("echo BROKEN; exit 3", 0), environment, tmp_path)
