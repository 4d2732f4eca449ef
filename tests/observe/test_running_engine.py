"""One running engine, seen and recorded from outside, killed, and forgotten."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from omni_platforms.cli import main
from omni_platforms.observe import attaching, places
from omni_platforms.observe.client import ask_all
from tests.engine.fakes import PATIENCE, until

pytestmark = pytest.mark.xdist_group("observe_running")  # they share a process

SNAPSHOT = {"want": "snapshot"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A program with an engine of one worker and an executor of its own, which it uses."""
    folder = tmp_path_factory.mktemp("running")
    os.environ["OMNI_EXPOSE_FOLDER"] = str(folder / "home")
    environment = {**os.environ, "OMNI_PLATFORM": "cpu", "OMNI_EXPOSE": "1"}
    command = [sys.executable, "-m", "tests.observe.program", "serve", str(folder)]
    process = subprocess.Popen(command, env=environment)
    try:
        until((folder / "ready").exists)
        yield process
    finally:
        process.kill()
        process.wait()
        os.environ.pop("OMNI_EXPOSE_FOLDER")


def worker_of(process: subprocess.Popen[bytes]) -> int:
    (worker,) = psutil.Process(process.pid).children()
    return worker.pid


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "150"})


def test_top_shows_the_process_its_executors_and_its_worker(
    running: subprocess.Popen[bytes],
) -> None:
    done = invoke("top", "--json", "--interval", "0.5")
    assert done.exit_code == 0, done.output
    rows = {(row["pid"], row["kind"]): row for row in json.loads(done.stdout)["rows"]}
    worker = worker_of(running)
    assert set(rows) == {
        (running.pid, "outputs"),
        (running.pid, "engine"),
        (worker, "worker"),
    }
    for row in rows.values():
        assert row["outputs_per_s"] > 0
        assert row["bytes_per_s"] > 0
        assert row["problem"] == ""
    assert rows[worker, "worker"]["capacity"] == 4 << 20
    assert rows[running.pid, "outputs"]["state"] == "blocking"
    table = invoke("top", "--once", "--interval", "0.05")
    assert table.exit_code == 0
    for word in (str(running.pid), str(worker), "program.py engine 0", "worker 0", "OUT/S"):
        assert word in table.stdout


def test_a_trace_of_a_process_that_runs(running: subprocess.Popen[bytes], tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    done = invoke("trace", "--attach", str(running.pid), "--seconds", "1", "--out", str(out))
    assert done.exit_code == 0, done.output
    events = json.loads(out.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in spans} == {running.pid, worker_of(running)}
    assert {"submit", "on_host", "forward", "deliver", "result"} <= {e["cat"] for e in spans}
    length = max(e["ts"] + e["dur"] for e in spans) - min(e["ts"] for e in spans)
    assert 0.3e6 < length < 20e6
    # It goes on as before, and is not observed any more.
    again = invoke("trace", "--attach", str(running.pid), "--seconds", "0.3", "--out", str(out))
    assert again.exit_code == 0, again.output
    assert invoke("top", "--once", "--interval", "0.05").exit_code == 0


def test_nobody_is_recorded_who_cannot_be_seen(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    done = invoke("trace", "--attach", str(os.getpid()), "--out", str(tmp_path / "t"))
    assert done.exit_code == 1
    assert "OMNI_EXPOSE=1" in done.output


def test_what_is_killed_while_it_is_recorded_is_named_and_then_forgotten(
    running: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, wait = worker_of(running), attaching._wait

    def kill_meanwhile(connections: Any, seconds: float) -> None:
        until(lambda: list(tmp_path.glob(f"{running.pid}-*.ring")))
        os.kill(running.pid, signal.SIGKILL)
        wait(connections, PATIENCE)

    monkeypatch.setattr(attaching, "_wait", kill_meanwhile)
    problems = attaching.record_process(running.pid, PATIENCE, tmp_path, 1000)
    assert [f"process {running.pid} " in problem for problem in problems].count(True) == 1
    assert list(tmp_path.glob(f"{running.pid}-*.ring"))
    running.wait(PATIENCE)
    home = places.folder()
    until(lambda: not psutil.pid_exists(worker) or _is_zombie(worker))  # its lifeline ends it
    until(lambda: ask_all(home, SNAPSHOT) == [] and not list(home.iterdir()))
    assert invoke("top", "--json").exit_code == 1


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
