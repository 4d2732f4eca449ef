"""CI runs the Makefile's targets, a job a device, and `.ci/run` runs all that need no hardware."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from omni_platforms.platform.plugin_entries import find_entries

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = (ROOT / ".github" / "workflows" / "ci.yml").read_text()

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def jobs() -> dict[str, str]:
    """The text of each job, by its name."""
    _, _, text = WORKFLOW.partition("\njobs:\n")
    parts = re.split(r"^  (\w+):\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def devices_of(job: str) -> list[str]:
    (listed,) = re.findall(r"device: \[(.*)\]", job)
    return [name.strip() for name in listed.split(",")]


def commands() -> list[str]:
    """Every command of every job, with each device of the job's matrix."""
    found = []
    for job in jobs().values():
        for command in re.findall(r"- run: (.*)", job):
            if "matrix.device" in command:
                names = devices_of(job)
                found += [re.sub(r"\$\{\{ matrix\.device \}\}", n, command) for n in names]
            else:
                found.append(command)
    return found


def dry_run(*targets: str) -> str:
    """What make would run, once the environment is there."""
    command = ["make", "--dry-run", "--assume-old=.venv/.ready", *targets]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_a_job_for_every_device() -> None:
    assert devices_of(jobs()["conformance"]) == ["cpu", "npu", "xpu", "musa"]
    assert set(devices_of(jobs()["hardware"])) >= set(find_entries()) - {"sim"}
    assert 'runs-on: [self-hosted, "${{ matrix.device }}"]' in jobs()["hardware"]
    assert "github.event_name != 'pull_request'" in jobs()["hardware"]


@needs_make
@pytest.mark.parametrize("command", commands())
def test_every_command_is_a_target_of_the_makefile(command: str) -> None:
    program, *arguments = command.split()
    assert program == "make"
    printed = dry_run(*arguments)
    if arguments[0].startswith("hardware-"):
        name = arguments[0].removeprefix("hardware-")
        assert f"conform {name} --require-device" in printed
        assert "--simulate" not in printed
    elif arguments[0] not in ("check", "test", "conform-cpu", "dist"):
        assert "--simulate" in printed


@needs_make
def test_a_target_that_does_not_exist_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="No rule to make target"):
        dry_run("conform-cuda")


@needs_make
def test_ci_run_runs_all_that_needs_no_hardware() -> None:
    lines = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    printed = "".join(dry_run(*line.split()) for line in lines)
    for command in (each for each in commands() if not ("hardware" in each or "example" in each)):
        for step in dry_run(*command.split()[1:]).splitlines():
            assert step in printed
