"""The trace, the timeline, the sheet and the summary, from runs made by hand."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omni_platforms.demo.detail import detail_box
from omni_platforms.demo.record import RunRecord, different
from omni_platforms.demo.sheet import MOST_ROWS, Panel, Row, draw_sheet
from omni_platforms.demo.spans import LANES, Span
from omni_platforms.demo.summary import explain
from omni_platforms.demo.timeline import draw_timeline
from omni_platforms.demo.trace import chrome_trace

from .conftest import RunDemo, picture


def record(
    name: str, mode: str = "async", forward: float = 0.1, encode: float = 0.02, period: float = 0.2
) -> RunRecord:
    """Three requests, one every `period` seconds."""
    run = RunRecord(name, 3, mode, "by hand", dict.fromkeys(LANES, "thread"), start=100.0)
    for number in range(3):
        start = 100 + number * period
        run.lanes["forward"].append(Span(start, start + forward, number))
        for lane in ("copy", "pack"):
            run.lanes[lane].append(Span(start + forward, start + forward + 0.001, number))
        run.lanes["encode"].append(Span(start + forward, start + forward + encode, number))
        run.add_picture(b"picture %d" % number, forward + encode)
    run.end = run.lanes["encode"][-1].end
    return run


def check_events(events: list[dict[str, Any]]) -> None:
    """Every event is well formed, and the spans of one thread follow one another."""
    spans: dict[tuple[int, int], list[dict[str, Any]]] = {}
    named = set()
    for event in events:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert event["name"]
        spans.setdefault((event["pid"], event["tid"]), []).append(event)
    assert len(spans) == 2 * len(LANES)
    for (pid, tid), lane in spans.items():
        assert ("process_name", pid, 0) in named
        assert ("thread_name", pid, tid) in named
        lane.sort(key=lambda event: event["ts"])
        for left, right in itertools.pairwise(lane):
            assert left["ts"] + left["dur"] <= right["ts"] + 1e-3


def test_the_trace_of_a_real_run(run_demo_command: RunDemo, photo: Path, tmp_path: Path) -> None:
    assert run_demo_command(photo, "--repeat", 6).exit_code == 0
    trace = json.loads((tmp_path / "out" / "trace.json").read_text())
    check_events(trace["traceEvents"])
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 2 * 4 * 6


def test_the_trace_is_in_microseconds() -> None:
    runs = [record("blocking"), record("async")]
    events = chrome_trace(runs, ["a", "b", "c"])["traceEvents"]
    check_events(events)
    second = next(event for event in events if event["name"] == "forward 1")
    assert (second["ts"], second["dur"]) == (pytest.approx(2e5), pytest.approx(1e5))
    assert second["args"] == {"request": 1, "photo": "b"}


def test_figures_of_a_record() -> None:
    run = record("async")
    assert run.requests_per_s == pytest.approx(3 / 0.52)
    assert run.idle_share == pytest.approx(0.2 / 0.5)
    assert run.latency_median == pytest.approx(0.12)
    assert run.pictures == [b"picture 0", b"picture 1", b"picture 2"]


def test_different_pictures_are_named() -> None:
    one, other = record("blocking"), record("async")
    assert different(one, other) == []
    other.digests[2] = b"x"
    assert different(one, other) == [2]


def test_the_timeline_is_a_picture() -> None:
    png = draw_timeline([record("blocking"), record("async", period=0.1)], "Title")
    image = Image.open(io.BytesIO(png)).convert("RGB")
    assert image.width > 1000
    shown = {colour for _, colour in image.getcolors(1 << 24) or []}
    assert (0x25, 0x63, 0xEB) in shown  # the forwards are there
    assert (0x8B, 0x5C, 0xF6) in shown  # and the encodings


@pytest.mark.parametrize("size", [(40, 30), (8, 8), (30, 400), (400, 30)])
def test_the_sheet_shows_every_picture(size: tuple[int, int]) -> None:
    panels = [Panel(np.full((size[1], size[0], 3), c, np.uint8), "Title") for c in (50, 100, 150)]
    sheet = Image.open(io.BytesIO(draw_sheet([lambda: Row("name", panels)], "Title", "below")))
    colours = {colour for _, colour in sheet.getcolors(1 << 24) or []}
    assert {(50, 50, 50), (100, 100, 100), (150, 150, 150)} <= colours


def test_a_long_sheet_is_cut() -> None:
    made = []

    def make() -> Row:
        made.append(1)
        return Row("name", [Panel(picture(), "Title")])

    draw_sheet([make] * (MOST_ROWS + 3), "Title", "below")
    assert len(made) == MOST_ROWS


def test_the_detail_is_where_the_outlines_are() -> None:
    pixels = np.full((200, 300, 3), 128, np.uint8)
    pixels[120:150, 220:260] = 255
    left, top, right, bottom = detail_box(pixels, 60)
    assert right - left == bottom - top == 60
    assert left <= 220 < 260 <= right
    assert top <= 120 < 150 <= bottom


def test_the_summary_says_what_was_gained() -> None:
    text = explain(record("blocking"), record("async", period=0.09, forward=0.09))
    assert "1.79 times as many requests" in text
    assert "idled 40%" in text
    assert "0% with it" in text
    assert "encoding (20.0 ms) no longer stand" in text
    assert "took longer to arrive" not in text


def test_the_summary_says_when_a_picture_arrives_later() -> None:
    later = record("async", period=0.1)
    later.latencies = [0.3] * 3
    text = explain(record("blocking"), later)
    assert "took longer to arrive (300.0 ms, 120.0 ms before)" in text


def test_the_summary_says_when_there_is_little_to_gain() -> None:
    text = explain(record("blocking"), record("async", mode="blocking"))
    assert "changed little" in text
    assert "little to gain: it has no side stream" in text


def test_the_summary_says_when_it_was_slower() -> None:
    assert "slower here" in explain(record("blocking"), record("async", period=0.3))


def test_the_summary_says_when_encoding_sets_the_pace() -> None:
    text = explain(record("blocking", encode=0.15), record("async", encode=0.15))
    assert "the one background thread sets the pace" in text


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(0.13, 0.1, True), (0.11, 0.1, False), (0.1, 0.14, False), (0.1, 0.16, True)],
)
def test_a_disturbed_run_is_not_compared(before: float, after: float, said: bool) -> None:
    text = explain(record("blocking", forward=before), record("async", forward=after))
    assert ("cannot be compared" in text) is said
