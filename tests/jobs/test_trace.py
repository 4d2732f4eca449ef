"""The trace: valid whether it was closed or cut off, with spans that stand where they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omni_platforms.jobs import trace
from omni_platforms.jobs.records import Ended
from omni_platforms.jobs.requests import read_requests
from omni_platforms.jobs.trace import Trace


def ended(name: str, worker: int | None, at: float) -> Ended:
    request = read_requests([json.dumps({"id": name}).encode()]).requests[0]
    record = Ended(request, at, worker=worker, finished=at + 5)
    moments = {"queue": 0, "forward": 1, "copy": 2, "hand-over": 3, "save": 4}
    record.spans = {stage: (at + begun, at + begun + 1) for stage, begun in moments.items()}
    return record


def written(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())
    return events


def test_spans_stand_where_they_were(tmp_path: Path) -> None:
    with Trace(tmp_path / "t", 100.0, ["worker 0 (cpu)", "worker 1 (cpu)"]) as file:
        file.add(ended("a", 1, 100.0))
    events = written(tmp_path / "t")
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names[2] == "worker 1 (cpu)"
    spans = {e["cat"]: e for e in events if e["ph"] == "X"}
    assert list(spans) == ["forward", "copy", "hand-over", "save"]
    assert (spans["forward"]["ts"], spans["forward"]["dur"]) == (1e6, 1e6)
    assert spans["forward"]["pid"] == 2
    assert spans["save"]["pid"] == 0
    assert [(e["ph"], e["ts"]) for e in events if e.get("cat") == "queue"] == [
        ("b", 0.0),
        ("e", 1e6),
    ]


def test_spans_of_one_lane_do_not_overlap(tmp_path: Path) -> None:
    with Trace(tmp_path / "t", 0.0, ["w"]) as file:
        for number in range(5):
            file.add(ended(str(number), 0, number * 0.5))  # each begins inside the one before
    lanes: dict[tuple[int, int], float] = {}
    for event in written(tmp_path / "t"):
        if event["ph"] == "X":
            lane = (event["pid"], event["tid"])
            assert event["ts"] >= lanes.get(lane, 0.0) - 1e-6
            lanes[lane] = event["ts"] + event["dur"]
    assert len(lanes) == 4


def test_what_no_worker_answered_has_no_lane(tmp_path: Path) -> None:
    with Trace(tmp_path / "t", 0.0, []) as file:
        file.add(ended("a", None, 0.0))
    assert [e["ph"] for e in written(tmp_path / "t")] == ["M"]


def test_a_trace_that_was_cut_off_lacks_only_its_end(tmp_path: Path) -> None:
    with Trace(tmp_path / "t", 0.0, ["w"]) as file:
        file.add(ended("a", 0, 0.0))
        assert file._file is not None
        file._file.flush()
        text = (tmp_path / "t").read_text()
    assert len(json.loads(text + "]")) == len(written(tmp_path / "t"))


def test_a_long_run_does_not_fill_the_disk(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(trace, "_MOST_REQUESTS", 2)
    with Trace(tmp_path / "t", 0.0, ["w"]) as file:
        for number in range(5):
            file.add(ended(str(number), 0, float(number)))
    forwards = [e["name"] for e in written(tmp_path / "t") if e.get("cat") == "forward"]
    assert forwards == ["0", "1"]
