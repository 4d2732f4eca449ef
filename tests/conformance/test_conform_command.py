"""`omni-platforms conform`: its exit status, its files, and runs that die."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from omni_platforms.conformance.read import read_report
from omni_platforms.conformance.record import Outcome
from tests.fake_plugins import (
    clean_environment,
    creating,
    probing,
    run_cli,
    run_python,
    write_plugin,
)

# A platform whose devices are the host, and which does `BODY` when it is asked for its memory.
PLATFORM = """
import os, signal, threading
from omni_platforms.platform import Capability, CpuPlatform
class Fake(CpuPlatform):
    name = NAME
    conformance_tier = "T1"
    profiler_activity = None  # CPU's would claim to be the host
    def memory_info(self, device=None):
        BODY
return Fake() if name == NAME else None
"""
RIGHT = "return CpuPlatform.memory_info(self, device)"


def install(folder: Path, name: str, body: str, devices: int = 2) -> None:
    source = creating(name, PLATFORM.replace("NAME", repr(name)).replace("BODY", body))
    if not devices:
        source = source.replace("AVAILABLE", "ABSENT").replace(", 2,", ", 0,")
    write_plugin(folder, name, source)


def outcomes_of(folder: Path) -> dict[str, Outcome]:
    return {row.id: row.outcome for row in read_report(folder).rows}


@pytest.mark.slow  # CI runs it by `make conform`
def test_a_right_platform_is_certified_and_its_report_written(tmp_path: Path) -> None:
    install(tmp_path / "site", "right", RIGHT)
    folder = tmp_path / "report"
    arguments = ["conform", "right", "--tier", "T0-T1", "--report", str(folder), "--json"]
    done = run_cli(*arguments, folders=(tmp_path / "site",), PYTEST_ADDOPTS="--no-such-option")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((folder / "conformance.json").read_text())
    assert document["tier_certified"] == "T1"
    assert (document["mode"], document["tiers"]) == ("hardware", ["T0", "T1"])
    assert {"fake-right"} <= document["versions"].keys()
    assert "test session starts" in done.stderr
    assert sorted(each.suffix for each in folder.iterdir()) == [".html", ".json", ".md", ".xml"]


def check_that_it_died(folder: Path, words: str) -> None:
    report = read_report(folder)
    (error,) = [row for row in report.rows if row.outcome is Outcome.ERROR]
    assert words in error.reason
    assert error.tier == "T1"
    after = report.rows[report.rows.index(error) + 1 :]
    assert after
    assert {row.outcome for row in after} == {Outcome.BLOCKED}


def test_a_run_that_crashes_has_a_report_and_fails_with_the_contract(tmp_path: Path) -> None:
    install(tmp_path / "site", "dying", "os.kill(os.getpid(), signal.SIGSEGV)")
    arguments = ["dying", "--tier", "T0-T1", "--report", str(tmp_path / "report")]
    done = run_cli("conform", *arguments, folders=(tmp_path / "site",))
    assert done.returncode == 1, done.stderr
    check_that_it_died(tmp_path / "report", "killed by SIGSEGV")
    for words in ("error: T1", "contract: ", "reason: the process was killed", "certified to T0"):
        assert words in done.stdout
    assert read_report(tmp_path / "report").tier_certified == "T0"


def test_a_run_that_hangs_has_a_report(tmp_path: Path) -> None:
    """The time must be enough to begin, which a busy machine makes long."""
    install(tmp_path / "site", "waiting", "threading.Event().wait()")
    folder = tmp_path / "report"
    for seconds in ("6", "20", "60"):
        arguments = ["waiting", "--tier", "T1", "--report", str(folder), "--timeout", seconds]
        done = run_cli("conform", *arguments, folders=(tmp_path / "site",))
        assert done.returncode == 1, done.stderr
        if "the suite did not begin" not in done.stderr and "error: T1" in done.stdout:
            break
    check_that_it_died(folder, f"ended after {seconds} s")


def test_a_run_that_is_told_to_end_takes_its_processes_along(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    body = f"open({str(file)!r}, 'w').write(f'{{os.getpid()}}.'); threading.Event().wait()"
    install(tmp_path / "site", "waiting", body)
    command = [sys.executable, "-m", "omni_platforms", "conform", "waiting", "--tier", "T1"]
    environment = clean_environment(tmp_path / "site")
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as run:
        wait_until(lambda: file.exists() and file.read_text().endswith("."))
        child = psutil.Process(int(file.read_text().rstrip(".")))
        run.send_signal(signal.SIGTERM)
        assert run.wait(60) == 128 + signal.SIGTERM
        wait_until(lambda: not child.is_running())


def wait_until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        threading.Event().wait(0.02)


def test_without_a_device_only_the_probe_is_tested_unless_one_is_required(tmp_path: Path) -> None:
    install(tmp_path, "gone", RIGHT, devices=0)
    done = run_cli("conform", "gone", "--json", folders=(tmp_path,))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tier_certified"] == "T0"
    arguments = ["conform", "gone", "--tier", "T0", "--require-device"]
    required = run_cli(*arguments, folders=(tmp_path,))
    assert required.returncode == 1
    assert "test_a_device_is_there" in required.stdout


def test_a_suite_that_does_not_begin_is_one_clear_line(tmp_path: Path) -> None:
    """The plugin ends the process while it is probed."""
    write_plugin(tmp_path, "ending", probing("ending", "import os; os._exit(9)"))
    done = run_cli("conform", "ending", "--json", folders=(tmp_path,))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the suite did not begin: the process ended with status 9" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_cli("conform", "cpu", "--report", str(tmp_path / "file" / "report"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "the report cannot be written to" in done.stderr
    assert "test session starts" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cpuu"], "Did you mean 'cpu'?"),
        (["cpu", "--simulate"], "cpu cannot be simulated"),
        (["cuda", "--simulate"], "cuda cannot be simulated"),
        (["cpu", "--tier", "T9"], "'T9' names no tier"),
        (["cpu", "--timeout", "0"], "--timeout"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_two(arguments: list[str], words: str) -> None:
    done = run_cli("conform", *arguments, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_without_pytest_the_extra_is_named(tmp_path: Path) -> None:
    code = """
    import importlib.util, sys
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "pytest" else find(name, *rest)
    from omni_platforms.cli import main
    main(["conform", "cpu"])
    """
    done = run_python(code, tmp_path)
    assert done.returncode == 1
    assert "pip install 'omni-platforms[conformance]'" in done.stderr


def test_the_simulated_device_of_a_plugin_is_the_one_that_it_names(tmp_path: Path) -> None:
    from omni_platforms.conformance.known_failures import read_simulated_device
    from omni_platforms.conformance.simulated import device_for
    from omni_platforms.errors import KnownFailuresError

    assert [device_for(name) for name in ("npu", "sim", "unheard_of")] == [
        "npu",
        "sim",
        "unheard_of",
    ]
    file = tmp_path / "conformance.toml"
    file.write_text('simulate = "sim"\n')
    assert read_simulated_device(file) == "sim"
    file.write_text("simulate = 3\n")
    with pytest.raises(KnownFailuresError, match="one device's name"):
        read_simulated_device(file)
