"""The trace format: what is written is what Perfetto reads, also when it is cut off."""

from __future__ import annotations

import io
import itertools
import json

import pytest

from omni_platforms.observe.trace_events import (
    ArrayWriter,
    Lanes,
    arrow,
    document,
    moment,
    name_process,
    name_track,
    overlapping,
    span,
)

TRACK = (7, 3)


def test_times_are_microseconds_with_nanoseconds_as_decimals() -> None:
    event = span(TRACK, "a", "copy", 1.0, 1.000_001_5, {"bytes": 3})
    assert (event["ts"], event["dur"]) == (1e6, 1.5)
    assert (event["pid"], event["tid"], event["args"]) == (7, 3, {"bytes": 3})
    assert moment(TRACK, "m", "c", 2.5, {})["ts"] == 2.5e6


def test_no_span_ends_before_it_begins() -> None:
    assert span(TRACK, "a", "copy", 2.0, 1.0, {})["dur"] == 0.0


def test_a_lane_keeps_its_spans_apart_and_others_do_not_matter() -> None:
    lanes = Lanes()
    fitted = [lanes.fit(TRACK, at, at + 1.0) for at in (0.0, 0.5, 0.6, 9.0)]
    for (_, end), (start, _) in itertools.pairwise(fitted):
        assert start >= end
    assert fitted[3] == (9.0, 10.0)
    assert lanes.fit((7, 4), 0.5, 0.6) == (0.5, 0.6)


@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_a_file_that_was_cut_off_lacks_only_its_end(written: int) -> None:
    file = io.StringIO()
    writer = ArrayWriter(file)
    for number in range(written):
        writer.write(moment(TRACK, str(number), "c", 0.0, {}))
    cut_off = file.getvalue()
    writer.end()
    assert json.loads(file.getvalue()) == json.loads(cut_off + "]")
    assert len(json.loads(file.getvalue())) == written


def test_ends_belong_together_by_their_number() -> None:
    begin, end = overlapping(TRACK, "queue r1", "queue", 1.0, 2.0, "r1")
    assert (begin["ph"], end["ph"]) == ("b", "e")
    assert {begin["id"], end["id"]} == {"r1"}
    tail, head = arrow(5, ((1, 1), 1.0), ((2, 2), 3.0))
    assert (tail["ph"], tail["pid"], head["ph"], head["pid"], head["bp"]) == ("s", 1, "f", 2, "e")


def test_processes_and_tracks_have_names_and_places() -> None:
    events = [*name_process(7, "engine", 1), *name_track(TRACK, "side stream", 2)]
    assert [event["name"] for event in document(events)["traceEvents"]] == [
        "process_name",
        "process_sort_index",
        "thread_name",
        "thread_sort_index",
    ]
    assert next(name_process(7, "engine"))["args"] == {"name": "engine"}
