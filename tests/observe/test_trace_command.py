"""`omni-platforms trace` around real processes: who did what when, on the tracks of one clock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from omni_platforms.cli import main
from omni_platforms.observe import merge as merging
from tests.engine.fakes import until

pytestmark = pytest.mark.xdist_group("observe_trace")  # they share what a program recorded

PROGRAM = [sys.executable, "-m", "tests.observe.program"]
ENVIRONMENT = {**os.environ, "OMNI_PLATFORM": "cpu"}


def trace(tmp_path: Path, *what: str, options: tuple[str, ...] = ()) -> Any:
    out = ["--out", str(tmp_path / "trace.json")]
    command = [sys.executable, "-m", "omni_platforms", "trace", *out, *options, "--", *what]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=100)


class Read:
    """A trace by its tracks: `(process, track): spans`."""

    def __init__(self, path: Path) -> None:
        self.events = json.loads(path.read_text())["traceEvents"]
        named: dict[Any, str] = {}
        for event in self.events:
            if event["name"] in ("process_name", "thread_name"):
                named[event["pid"], event["tid"]] = event["args"]["name"]
        self.tracks: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for event in self.events:
            if event["ph"] == "X":
                key = named[event["pid"], 0], named[event["pid"], event["tid"]]
                self.tracks[key].append(event)

    def span(self, name: str, process: str = "") -> Any:
        (found,) = [
            event
            for (where, _), events in self.tracks.items()
            for event in events
            if event["name"] == name and where.startswith(process)
        ]
        return found


def check_nesting(events: list[Any]) -> None:
    """Spans of one track are inside each other, or apart."""
    open_ends: list[float] = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= event["ts"] + 1e-3:
            open_ends.pop()
        end = event["ts"] + event["dur"]
        assert not open_ends or end <= open_ends[-1] + 1e-3, event
        open_ends.append(end)


def check_ways(read: Read, count: int) -> None:
    """Each request stands on one clock: asked, computed, sent, received, taken, in this order."""
    for number in range(1, count + 1):
        submit = read.span(f"submit r{number}")
        forward = read.span(f"forward r{number}", "worker 0")
        receive = read.span(f"receive OUTPUT_READY r{number}")
        assert submit["ts"] <= forward["ts"]
        assert forward["ts"] + forward["dur"] <= receive["ts"] + receive["dur"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a program with one worker recorded on its own."""
    folder = tmp_path_factory.mktemp("rings")
    environment = {**ENVIRONMENT, "OMNI_TRACE": str(folder)}
    subprocess.run([*PROGRAM, "requests"], env=environment, check=True, timeout=100)
    return folder


def test_the_way_of_requests_through_processes(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    done = CliRunner().invoke(main, ["trace", "--merge", str(recorded), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "of 2 processes" in done.output
    read = Read(out)
    assert set(read.tracks) == {
        ("program.py", "MainThread: submits, consumer"),
        ("program.py", "omni-pump-0: pump"),
        ("worker 0", "MainThread: forwards"),
        ("worker 0", "omni-outputs: output thread"),
    }
    check_ways(read, 4)
    for events in read.tracks.values():
        check_nesting(events)
    arrows = [event for event in read.events if event["ph"] == "s"]
    assert len(arrows) == 4 * 4  # submit, forward, deliver, receive, result


def test_twin_clocks_that_differ_are_seen(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shifted(merging.Ring):
        def events(self) -> Any:
            shift = -60.0 if self.about["rank"] is not None else 0.0
            for *what, begin, end, args in super().events():
                yield [*what, begin + shift, end + shift, args]

    monkeypatch.setattr(merging, "Ring", Shifted)
    (tmp_path / "t.json").write_text(json.dumps(merging.merge(recorded).trace))
    with pytest.raises(AssertionError):
        check_ways(Read(tmp_path / "t.json"), 4)


def test_a_file_that_is_no_ring_is_named(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "other.ring").write_text("x")
    for ring in recorded.glob("*.ring"):
        (tmp_path / ring.name).write_bytes(ring.read_bytes())
    merged = merging.merge(tmp_path)
    assert merged.unreadable == ["other.ring"]
    assert merged.processes == 2


@pytest.mark.slow
def test_a_simulated_device_has_tracks_seen_by_the_host(tmp_path: Path) -> None:
    environment = {**os.environ, "OMNI_SIMULATE": "sim", "OMNI_TRACE": str(tmp_path)}
    subprocess.run([*PROGRAM, "outputs"], env=environment, check=True, timeout=100)
    (tmp_path / "t.json").write_text(json.dumps(merging.merge(tmp_path).trace))
    read = Read(tmp_path / "t.json")
    assert {track for _, track in read.tracks} == {
        "MainThread: submits, consumer",
        "omni-outputs-sim:0: output thread",
        "side stream of sim:0 (times seen by the host)",
    }
    copies = read.tracks["program.py", "side stream of sim:0 (times seen by the host)"]
    assert [copy["name"] for copy in copies] == [f"copy 0.{n}" for n in range(5)]
    assert all(copy["args"]["clock"] == "host" for copy in copies)
    assert {copy["args"]["bytes"] for copy in copies} == {400_000}
    for number in range(5):
        copy, pack = read.span(f"copy 0.{number}"), read.span(f"on_host 0.{number}")
        assert copy["ts"] + copy["dur"] <= pack["ts"] + 1e-3


def test_a_command_that_is_killed_leaves_its_trace(tmp_path: Path) -> None:
    done = trace(tmp_path, *PROGRAM, "killed")
    assert done.returncode == 128 + signal.SIGKILL
    assert len(Read(tmp_path / "trace.json").tracks["program.py", "MainThread: submits, consumer"])


def test_the_status_is_the_commands_and_json_stands_alone(tmp_path: Path) -> None:
    done = trace(tmp_path, *PROGRAM, "status", "7", options=("--json",))
    assert done.returncode == 7
    assert "the command's own words" in done.stderr
    document = json.loads(done.stdout)
    assert document["status"] == 7
    assert document["spans"] == 3
    assert document["processes"] == 1


@pytest.mark.slow
def test_the_last_events_are_kept(tmp_path: Path) -> None:
    done = trace(tmp_path, *PROGRAM, "outputs", "50", options=("--events", "30"))
    assert done.returncode == 0
    assert "120 older events were overwritten" in done.stderr
    assert Read(tmp_path / "trace.json").span("submit 0.49")


@pytest.mark.slow
def test_a_command_without_an_executor_is_a_failure(tmp_path: Path) -> None:
    done = trace(tmp_path, *PROGRAM, "nothing")
    assert done.returncode == 1
    assert "nothing was recorded" in done.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["--merge", ".", "--", "true"], ["--", "/no/such/program"]]
)
def test_wrong_usage(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(main, ["trace", *arguments]).exit_code == 2


@pytest.mark.slow
def test_sigterm_ends_the_command_and_the_trace_is_written(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    options = ["trace", "--out", str(out), "--", *PROGRAM, "stuck", str(tmp_path)]
    command = [sys.executable, "-m", "omni_platforms", *options]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE)
    try:
        until((tmp_path / "ready").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.communicate()
    submits = [e for e in json.loads(out.read_text())["traceEvents"] if e.get("cat") == "submit"]
    assert len(submits) >= 1


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_a_warning_and_no_more(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "OMNI_TRACE": str(tmp_path / "no" / "folder")}
    done = subprocess.run(
        [*PROGRAM, "outputs"], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0
    assert "no events are recorded" in done.stderr
    bad = {**ENVIRONMENT, "OMNI_TRACE_EVENTS": "many", "OMNI_TRACE": str(tmp_path)}
    done = subprocess.run(
        [*PROGRAM, "outputs"], env=bad, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0
    assert "OMNI_TRACE_EVENTS='many'" in done.stderr


def test_events_of_two_hosts_are_said_to_be_of_two_clocks(recorded: Path, tmp_path: Path) -> None:
    assert merging.merge(recorded).clocks == 1
    for ring in recorded.glob("*.ring"):
        (tmp_path / ring.name).write_bytes(ring.read_bytes())
    first = next(tmp_path.glob("*.ring"))
    data = first.read_bytes()
    boot = merging.Ring(first).about["boot"]
    assert len(boot) == 36
    first.write_bytes(data.replace(boot.encode(), b"0" * 36))
    out = tmp_path / "t.json"
    done = CliRunner().invoke(main, ["trace", "--merge", str(tmp_path), "--out", str(out)])
    assert done.exit_code == 0
    assert "of 2 hosts" in done.output
