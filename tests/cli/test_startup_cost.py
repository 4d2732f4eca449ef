"""Help and the list are quick, because they import nothing heavy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_plugins import run_python

HEAVY = ("torch", "numpy", "rich", "psutil", "matplotlib")
LIMIT_S = 0.3

MEASURE = """
import contextlib, io, sys, time
sys.argv = ["omni-platforms", *{arguments}]
{plant}
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    from omni_platforms.cli import main
    main(prog_name="omni-platforms")
heavy = sorted(set({heavy}) & set(sys.modules))
commands = sorted(m for m in sys.modules if m.startswith("omni_platforms.cli."))
print(time.process_time(), ",".join(heavy) or "-", ",".join(commands))
"""


def measure(folder: Path, *arguments: str, plant: str = "") -> tuple[float, str, set[str]]:
    """Return the least CPU time of three runs in seconds, heavy imports, CLI modules."""
    code = MEASURE.format(arguments=list(arguments), heavy=HEAVY, plant=plant)
    answers = []
    for _ in range(3):
        done = run_python(code, folder)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.split())
    seconds, heavy, commands = min(answers, key=lambda answer: float(answer[0]))
    return float(seconds), heavy, set(commands.split(","))


@pytest.mark.parametrize("arguments", [["--help"], ["list"], ["list", "--json"], ["env"]])
def test_it_is_quick_and_light(tmp_path: Path, arguments: list[str]) -> None:
    seconds, heavy, _ = measure(tmp_path, *arguments)
    assert heavy == "-"
    assert seconds < LIMIT_S


def test_help_imports_no_command(tmp_path: Path) -> None:
    _, _, modules = measure(tmp_path, "--help")
    assert modules == {"omni_platforms.cli.lazy_group"}


def test_a_heavy_import_would_be_seen(tmp_path: Path) -> None:
    _, heavy, _ = measure(tmp_path, "--help", plant="import numpy")
    assert "numpy" in heavy


def test_help_describes_every_command_as_the_command_itself_does() -> None:
    """The lines that `--help` shows without importing a command are still true."""
    from omni_platforms.cli import _COMMANDS

    for lazy in _COMMANDS:
        command = lazy.load()
        assert command.name == lazy.name
        assert command.get_short_help_str(limit=100) == lazy.help
