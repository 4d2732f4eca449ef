"""`results.jsonl`: what a kill cannot take back, and what `--resume` takes from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from omni_platforms.errors import JobError
from omni_platforms.jobs.requests import Request, read_requests
from omni_platforms.jobs.results import ResultFolder


def request(name: str = "a", x: int = 1) -> Request:
    return read_requests([json.dumps({"id": name, "x": x}).encode()]).requests[0]


def done(of: Request, **more: Any) -> dict[str, Any]:
    return {"id": of.id, "status": "ok", "digest": of.digest, "files": [], **more}


def test_a_line_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    with ResultFolder(tmp_path / "out") as folder:
        assert folder.is_new()
        folder.append({"id": "a"})
        assert folder.results.read_text() == '{"id": "a"}\n'
        assert not folder.is_new()


@pytest.mark.parametrize(
    ("records", "finished"),
    [
        ([done(request())], True),
        ([], False),
        ([done(request(), status="failed")], False),
        ([done(request()), done(request(), status="failed")], False),
        ([done(request(), status="failed"), done(request())], True),
        ([done(request(x=2))], False),
        ([done(request("b"))], False),
        ([done(request(), files=["outputs/here"])], True),
        ([done(request(), files=["outputs/here", "outputs/gone"])], False),
        ([[1], "x", {"no": "id"}, done(request())], True),
    ],
)
def test_finished_is_what_is_there_and_the_same(
    tmp_path: Path, records: list[Any], finished: bool
) -> None:
    with ResultFolder(tmp_path) as folder:
        (folder.outputs / "here").touch()
        for record in records:
            folder.append(record)
        assert folder.finished([request()]) == ([request()] if finished else [])


def test_a_line_that_was_cut_short_spoils_neither_what_is_before_nor_behind(tmp_path: Path) -> None:
    with ResultFolder(tmp_path) as folder:
        folder.append(done(request("a")))
    with folder.results.open("a") as file:
        file.write('{"id": "b", "status": "o')
    with ResultFolder(tmp_path) as folder:
        folder.append(done(request("c")))
        names = [found.id for found in folder.finished(map(request, "abc"))]
        assert names == ["a", "c"]


def test_a_disk_that_cuts_a_line_short_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:5]))
    with ResultFolder(tmp_path) as folder, pytest.raises(JobError, match="make room, and run"):
        folder.append(done(request()))


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with ResultFolder(tmp_path), pytest.raises(JobError, match="another run"):
        ResultFolder(tmp_path)
    ResultFolder(tmp_path).__exit__()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JobError, match="cannot be used"):
        ResultFolder(tmp_path / "file" / "out")


def test_a_file_system_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with ResultFolder(tmp_path) as folder:
        folder.append(done(request()))
        assert folder.finished([request()]) == [request()]
    assert "start no second run" in caplog.text
