"""The commands that the documentation tells to run, and what is wrong with one."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import click

from omni_platforms.cli import main
from tests.docs.pages import ROOT

_CONSOLE = re.compile(r"^ *```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=\S*")
_STARTS = ("omni-platforms ", "make ", "pip install ", "python ")


def commands_of(text: str) -> list[str]:
    """Return the commands in console blocks and indented blocks, without prompts and comments."""
    blocks = [*_CONSOLE.findall(text), *_INDENTED.findall(text)]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    stripped = (line.strip().removeprefix("$ ").partition("  #")[0].strip() for line in lines)
    without = (_without_assignments(line) for line in stripped)
    return [line for line in without if line.startswith(_STARTS)]


def _without_assignments(line: str) -> str:
    while found := _ASSIGNMENT.match(line):
        line = line[found.end() :].lstrip()
    return line


def fault_of(command: str) -> str | None:
    """Return what does not exist of a command, or `None`."""
    program, *arguments = shlex.split(command)
    if program == "omni-platforms":
        return _fault_of_ours(arguments)
    if program == "make":
        missing = [name for name in arguments if "=" not in name and name not in _targets()]
        return f"no target {missing}" if missing else None
    if program == "pip":
        asked = set(re.findall(r"omni-platforms\[([\w,]+)\]", command))
        unknown = {name for each in asked for name in each.split(",")} - _extras()
        return f"no extra {sorted(unknown)}" if unknown else None
    return _fault_of_python(arguments)


def _fault_of_ours(arguments: list[str]) -> str | None:
    name = arguments[0]
    if name.startswith("-"):
        return None if name in {"--help", "--version"} else f"no option {name}"
    command = main.get_command(click.Context(main), name)
    if command is None:
        return f"no command {name}"
    known = {option for each in command.params for option in each.opts} | {"--help"}
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    given = [word.strip("[]").partition("=")[0] for word in own]
    unknown = [word for word in given if word.startswith("-") and word not in known]
    return f"{name} has no option {unknown}" if unknown else None


def _fault_of_python(arguments: list[str]) -> str | None:
    if arguments[0] == "-m":
        module = ROOT.joinpath(*arguments[1].split("."))
        is_ours = arguments[1].split(".")[0] in {"omni_platforms", "tests", "tools"}
        there = module.is_dir() or module.with_suffix(".py").is_file()
        return f"no module {arguments[1]}" if is_ours and not there else None
    script = Path(arguments[0])
    known = script.parts[0] not in {"examples", "tools"} or (ROOT / script).is_file()
    return None if known else f"no file {script}"


@cache
def _targets() -> frozenset[str]:
    command = ["make", "--print-data-base", "--question", "--assume-old=.venv/.ready", "clean"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30).stdout
    return frozenset(re.findall(r"^([\w-]+):", printed, flags=re.MULTILINE))


@cache
def _extras() -> frozenset[str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    return frozenset(re.findall(r"^(\w+) = \[", table, flags=re.MULTILINE))
