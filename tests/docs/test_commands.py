"""Every command that the documentation shows exists, with its options."""

from __future__ import annotations

import shutil

import pytest

from tests.docs.commands import commands_of, fault_of
from tests.docs.pages import PAGES, name_of

COMMANDS = {
    (name_of(page), command)
    for page in PAGES
    for command in commands_of(page.read_text(encoding="utf-8"))
}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def test_every_command_exists() -> None:
    faults = {f"{page}: {command}": fault_of(command) for page, command in sorted(COMMANDS)}
    assert {where: fault for where, fault in faults.items() if fault} == {}


def test_many_commands_are_looked_at() -> None:
    programs = [command.split()[0] for _, command in COMMANDS]
    assert programs.count("omni-platforms") > 15
    assert {"make", "pip", "python"} <= set(programs)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("omni-platforms lst", "no command lst"),
        ("omni-platforms list --jsno", "list has no option"),
        ("OMNI_PLATFORM=cpu omni-platforms audit --max-waits 3 a.py", "audit has no option"),
        ("make conform-cuda", "no target"),
        ("pip install 'omni-platforms[nvidia]'", "no extra"),
        ("python examples/nothing.py", "no file"),
        ("python -m omni_platforms.nothing npu", "no module"),
    ],
)
def test_a_command_that_does_not_exist_would_be_seen(line: str, fault: str) -> None:
    (command,) = commands_of(f"Text\n\n    {line}  # comment\n")
    assert fault in str(fault_of(command))
    (command,) = commands_of(f"Text\n\n```console\n$ {line}\n```\n")
    assert fault in str(fault_of(command))


@pytest.mark.parametrize(
    "line",
    [
        "omni-platforms audit --max-syncs 3 loop.py -- --its-own",
        "omni-platforms run W --requests a.jsonl --out b [--workers N]",
        "make conform-npu hardware-npu TORCH=system",
        "python -m omni_platforms.simulator npu -- script.py",
    ],
)
def test_a_command_that_exists_has_no_fault(line: str) -> None:
    assert fault_of(line) is None
