"""Arrows go along the way of an output, forwards in time, and never to somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from omni_platforms.observe import ways
from omni_platforms.observe.trace_events import Event, span
from omni_platforms.observe.ways import Ways


def spans(**times: tuple[float, float]) -> list[Event]:
    """Spans of request r1, each on a track of its own, in the order of their stations."""
    return [
        span((1, track), f"{name.replace('_', ' ')} r1", name.replace("_", " "), *when, {})
        for track, (name, when) in enumerate(times.items())
    ]


def arrows(*events: Event, owner: int = 1) -> list[tuple[int, float, int, float]]:
    """Track and moment of both ends, in seconds."""
    found = Ways()
    for event in events:
        found.add(owner, event)
    ends = list(found.arrows())
    return [
        (a["tid"], a["ts"] / 1e6, b["tid"], b["ts"] / 1e6)
        for a, b in zip(ends[::2], ends[1::2], strict=True)
    ]


def test_an_arrow_goes_from_the_end_of_one_to_the_beginning_of_the_next() -> None:
    found = arrows(*spans(submit=(0, 1), forward=(2, 3), deliver=(4, 5), result=(4.5, 6)))
    assert [(a, b) for a, _, b, _ in found] == [(0, 1), (1, 2), (2, 3)]
    assert [at for _, at, _, _ in found] == pytest.approx([0.999, 2.999, 4.999])
    assert [at for _, _, _, at in found] == pytest.approx([2.0, 4.0, 5.999], abs=2e-3)


def test_who_waits_from_before_is_met_at_the_end() -> None:
    ((_, leaves, _, comes),) = arrows(*spans(copy=(5, 6), result=(0, 7)))
    assert leaves == pytest.approx(5.999)
    assert comes == pytest.approx(6.993)


def test_what_ends_inside_another_leaves_from_its_beginning() -> None:
    ((_, leaves, _, comes),) = arrows(*spans(copy=(1, 9), deliver=(0, 5)))
    assert (leaves, comes) == (1.0, pytest.approx(4.995))


def test_nothing_goes_back_in_time() -> None:
    assert arrows(*spans(forward=(5, 6), deliver=(0, 1))) == []


def test_others_and_processes_of_others_are_apart() -> None:
    first = span((1, 0), "submit r1", "submit", 0, 1, {})
    second = span((1, 1), "result r2", "result", 2, 3, {})
    assert arrows(first, second) == []
    found = Ways()
    found.add(1, first)
    found.add(2, span((2, 0), "result r1", "result", 2, 3, {}))
    assert list(found.arrows()) == []


def test_names_that_two_executors_have_get_no_arrow() -> None:
    events = spans(submit=(0, 1), result=(2, 3))
    assert len(arrows(*events)) == 1
    assert arrows(*events, span((1, 7), "submit r1", "submit", 5, 6, {})) == []


def test_a_devices_part_of_a_forward_is_not_its_station() -> None:
    thread = span((1, 0), "forward r1", "forward", 0, 1, {})
    device = span((1, 1), "forward r1", "forward", 0, 5, {"clock": "host"})
    ((source, _, target, _),) = arrows(
        thread, device, span((1, 2), "result r1", "result", 6, 7, {})
    )
    assert (source, target) == (0, 2)


def test_twin_without_a_look_at_time_an_arrow_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    careless: Any = lambda source, target: (source["ts"] / 1e6, target["ts"] / 1e6)  # noqa: E731
    monkeypatch.setattr(ways, "_moments", careless)
    with pytest.raises(AssertionError):
        test_nothing_goes_back_in_time()
