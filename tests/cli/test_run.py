"""`omni-platforms run` with real worker processes, one that kills itself, and a real SIGINT."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image

from omni_platforms import reset_platform, set_current_platform
from omni_platforms.cli import main
from omni_platforms.errors import WorkerStartError
from omni_platforms.platform.cpu import CpuPlatform

ROOT = Path(__file__).resolve().parents[2]
WORKERS = Path(__file__).with_name("run_workers.py")
PATIENCE = 60.0
RunCommand = Callable[..., Result]


@pytest.fixture
def run_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunCommand]:
    """Run the command on the CPU in a folder that has `my_worker.py`; it must leave nothing."""
    shutil.copy(WORKERS, tmp_path / "my_worker.py")
    monkeypatch.chdir(tmp_path)
    set_current_platform(CpuPlatform())

    def run(*arguments: object, worker: str = "my_worker:Worker") -> Result:
        words = ["run", worker, "--requests", "requests.jsonl", "--out", "out"]
        return CliRunner().invoke(main, [*words, *map(str, arguments)])

    before = _left()
    yield run
    reset_platform()
    assert _left() == before


def _left() -> tuple[set[int], list[str]]:
    """Return this process's children, and its threads that are the package's."""
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    names = sorted(thread.name for thread in threading.enumerate())
    return children, [name for name in names if name.startswith("omni-")]


def write_requests(*requests: dict[str, Any] | str) -> None:
    lines = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    Path("requests.jsonl").write_text("\n".join(lines))


def results() -> dict[str, dict[str, Any]]:
    lines = Path("out/results.jsonl").read_text().splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def lines_of(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_a_run_a_death_and_a_resume(run_command: RunCommand) -> None:
    good = [{"id": f"g{number}", "fill": number} for number in range(6)]
    kill = {"id": "killer", "kill": "out/results.jsonl:7"}
    write_requests(*good[:3], '{"id": "broken', {"id": "bad", "fail": "luck"}, *good[3:], kill)

    result = run_command("--workers", 2, "--mode", "async", "--config", '{"a": 1}', "--json")
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document == json.loads(Path("out/summary.json").read_text())
    counts = document["counts"]
    assert (counts["requests"], counts["ok"], counts["failed"]) == (8, 6, 1)
    assert (counts["unfinished"], counts["bad_lines"]) == (1, 1)
    assert "killed by SIGKILL" in document["error"]
    assert document["in_flight"] == ["killer"]
    assert document["bad_lines"][0]["line"] == 4
    assert document["mode"] == "async"
    assert "request 'bad' (line 5) failed: ValueError: no luck" in result.stderr
    assert "requests.jsonl, line 4: not JSON" in result.stderr
    _check_results()
    _check_trace()
    assert overlaps(request_times()) > 0

    again = run_command()
    assert again.exit_code == 1
    assert "has results already: add --resume" in again.stderr

    write_requests(*good, {"id": "bad", "fill": 9}, {"id": "new", "fill": 10})
    result = run_command("--resume", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["counts"]["finished_before"], document["counts"]["ok"]) == (6, 2)
    assert document["mode_reason"] == "auto: cpu has no side streams and no device events"
    assert lines_of(Path("out/results.jsonl")) == 9  # nothing ran twice
    assert results()["bad"]["status"] == "ok"

    result = run_command("--resume")  # nothing is left: no worker starts
    assert result.exit_code == 0
    assert "0 of 8 requests done, 8 done before" in result.stdout
    assert "starting" not in result.stderr


def _check_results() -> None:
    found = results()
    assert set(found) == {"bad", *(f"g{number}" for number in range(6))}
    assert {found[f"g{number}"]["worker"] for number in range(6)} == {0, 1}
    for number in range(6):
        record = found[f"g{number}"]
        output = record["output"]
        assert output["config"] == {"a": 1}
        assert output["rank"] == record["worker"]
        latents = torch.load(Path("out", output["latents"]["file"]), weights_only=True)
        assert torch.equal(latents, torch.full((20_000,), float(number), dtype=torch.bfloat16))
        pixels = np.array(Image.open(Path("out", output["image"]["file"])))
        assert pixels.shape == (6, 8, 3)
        assert (pixels == number).all()
    assert found["bad"]["stage"] == "forward"
    assert "my_worker.py" in found["bad"]["error"]["traceback"]


def _check_trace() -> None:
    events = json.loads(Path("out/trace.json").read_text())
    seen = {event["args"]["request"] for event in events if event.get("cat") == "save"}
    assert seen == {f"g{number}" for number in range(6)}
    stages = {event["cat"] for event in events if event["ph"] == "X"}
    assert stages == {"forward", "copy", "hand-over", "save"}


def request_times() -> list[tuple[float, float]]:
    """Return from when to when each request was under way, as the trace has it."""
    times: dict[int, list[float]] = {}
    for event in json.loads(Path("out/trace.json").read_text()):
        if event["ph"] == "b":
            times.setdefault(event["id"], []).append(event["ts"])
        elif event["ph"] == "X":
            times.setdefault(event["args"]["line"], []).append(event["ts"] + event["dur"])
    return sorted((min(moments), max(moments)) for moments in times.values())


def overlaps(times: list[tuple[float, float]]) -> int:
    """Count the requests that were submitted before the one before them was saved."""
    rounding = 0.01
    return sum(later[0] < earlier[1] - rounding for earlier, later in itertools.pairwise(times))


def test_ctrl_c_keeps_what_was_finished(run_command: RunCommand, tmp_path: Path) -> None:
    write_requests(*({"id": f"r{number}", "hold": 0.05} for number in range(1000)))
    file, sent = tmp_path / "out" / "results.jsonl", []

    def interrupt() -> None:
        deadline = time.monotonic() + PATIENCE
        while lines_of(file) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    before = signal.getsignal(signal.SIGINT)
    result = run_command("--mode", "async", "--grace", 3, "--json")
    took = time.monotonic() - sent[0]
    sender.join()
    assert result.exit_code == 130, result.output
    assert signal.getsignal(signal.SIGINT) is before
    assert took < 15
    document = json.loads(result.stdout)
    counts = document["counts"]
    assert document["interrupted_by"] == "SIGINT"
    assert document["error"] is None
    assert 3 <= counts["ok"] < 1000
    assert counts["failed"] == 0
    assert counts["ok"] == lines_of(file)
    assert counts["unfinished"] == 1000 - counts["ok"]
    assert "stopping: requests under way get 3 s" in result.stderr


def test_the_demos_photo_worker(run_command: RunCommand) -> None:
    from omni_platforms.demo.pack import to_uint8
    from omni_platforms.demo.restore import Restorer
    from tests.demo.conftest import picture

    Image.fromarray(picture()).save("disc.png")
    write_requests(
        {"id": "disc", "photo": "disc.png", "steps": 2, "noise": 0},
        {"id": "gone", "photo": "gone.png"},
        {"id": "odd", "photo": "disc.png", "steps": "many"},
    )
    result = run_command(worker="omni_platforms.demo.worker:PhotoWorker")
    assert result.exit_code == 1, result.output
    assert "1 of 3 requests done, 2 failed" in result.stdout
    assert "mode sync (auto: cpu has no side streams and no device events)" in result.stdout
    assert "gone.png: no such file" in result.stderr
    assert "steps is a number that is not negative, and not 'many'" in result.stderr
    assert len(request_times()) == 3
    assert overlaps(request_times()) == 0  # which is what sync means
    written = np.array(Image.open("out/outputs/disc@image.png"))
    inputs = torch.from_numpy(picture()).permute(2, 0, 1)[None]
    expected = to_uint8(Restorer(torch.device("cpu"), steps=2, noise=0)(inputs)).numpy()
    assert np.array_equal(written, expected)


def test_a_worker_that_does_not_start(run_command: RunCommand) -> None:
    write_requests({"id": "a"})
    result = run_command("--json", worker="no_such_module:Worker")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert "No module named 'no_such_module'" in document["error"]
    assert document["counts"]["unfinished"] == 1


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--mode", "fast"], "--mode"),
        (["--workers", 0], "--workers"),
        (["--grace", -1], "--grace"),
        (["--window", 0], "--window"),
        (["--mode", "sync", "--window", 2], "one request at a worker"),
        (["--max-in-flight", 0], "--max-in-flight"),
        (["--config", "no-such-file.json"], "neither JSON nor a file"),
        (["--requests", "gone.jsonl"], "gone.jsonl"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_wrong_usage(run_command: RunCommand, arguments: list[object], what: str) -> None:
    write_requests({"id": "a"})
    result = run_command(*arguments)
    assert result.exit_code == 2
    assert what in result.stderr


def test_the_windows_reach_the_workers(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def executor(*_: Any, window: int, max_in_flight: int) -> Any:
        asked.append((window, max_in_flight))
        raise WorkerStartError("not today")

    monkeypatch.setattr("omni_platforms.jobs.session.MultiprocExecutor", executor)
    write_requests({"id": "a"})
    shown = json.loads(run_command("--window", 5, "--max-in-flight", 7, "--json").stdout)
    assert (shown["mode"], shown["window"]) == ("async", 5)
    run_command("--resume")
    assert asked == [(5, 7), (1, 4)]


def test_a_worker_without_a_class_is_wrong_usage(run_command: RunCommand) -> None:
    write_requests({"id": "a"})
    assert run_command(worker="my_worker").exit_code == 2


def test_a_config_may_stand_in_a_file(run_command: RunCommand, tmp_path: Path) -> None:
    from omni_platforms.cli.run import _config

    (tmp_path / "config.json").write_text('{"a": [1]}')
    (tmp_path / "broken.json").write_text("{")
    assert _config("config.json") == {"a": [1]}
    assert _config('{"b": 2}') == {"b": 2}
    assert _config(None) is None
    write_requests({"id": "a"})
    assert "holds no JSON" in run_command("--config", "broken.json").stderr


def test_files_without_a_single_request(run_command: RunCommand) -> None:
    write_requests("", "  ")
    result = run_command()
    assert result.exit_code == 1
    assert "requests.jsonl holds no request" in result.stderr

    write_requests("no JSON")
    result = run_command()
    assert result.exit_code == 1
    assert "line 1: not JSON" in result.stderr
    assert "starting" not in result.stderr


def test_requests_may_come_from_standard_input(run_command: RunCommand) -> None:
    words = ["run", "my_worker:Worker", "--requests", "-", "--out", "out"]
    result = CliRunner().invoke(main, words, input="no JSON")
    assert result.exit_code == 1
    assert "<stdin>, line 1: not JSON" in result.stderr


def test_an_interrupt_before_anything_runs(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("omni_platforms.jobs.session.read_requests", interrupted)
    write_requests({"id": "a"})
    assert run_command().exit_code == 130


def test_the_page_names_every_option() -> None:
    from omni_platforms.cli.run import run

    page = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
    options = {name for parameter in run.params for name in parameter.opts if name != "worker"}
    assert {name for name in options if not re.search(rf"{name}\b", page)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_everything_at_once(
    run_command: RunCommand, tmp_path: Path, number: signal.Signals
) -> None:
    write_requests({"id": "quick"}, {"id": "stuck", "hold": 600})
    words = ["run", "my_worker:Worker", "--requests", "requests.jsonl", "--out", "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "omni_platforms", *words, "--grace", "600"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMNI_PLATFORM": "cpu"},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE
    while not lines_of(tmp_path / "out" / "results.jsonl"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = psutil.Process(process.pid).children()
    assert workers
    process.send_signal(number)
    assert process.stderr is not None
    while "stopping" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    _, said = process.communicate(timeout=5)
    assert process.returncode == 128 + number
    assert "ended at once" in said
    _, left = psutil.wait_procs(workers, timeout=5)
    assert left == []
    assert list(results()) == ["quick"]
