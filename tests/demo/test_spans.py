"""Idle time on spans made by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.demo.spans import Span, append_span, gaps, idle_share


def spans(*pairs: tuple[float, float]) -> list[Span]:
    return [Span(start, end, number) for number, (start, end) in enumerate(pairs)]


def test_the_time_between_forwards_is_idle() -> None:
    found = spans((10, 12), (13, 15), (15, 18), (19, 20))
    assert gaps(found) == [(12, 13), (18, 19)]
    assert idle_share(found) == pytest.approx(0.2)


def test_order_and_overlap_do_not_matter() -> None:
    found = spans((4, 5), (0, 3), (1, 2), (2.5, 3.5))
    assert gaps(found) == [(3.5, 4)]
    assert idle_share(found) == pytest.approx(0.1)


@pytest.mark.parametrize("pairs", [[], [(1, 1)], [(1, 4)], [(0, 1), (1, 2)]])
def test_nothing_between_is_not_idle(pairs: list[tuple[float, float]]) -> None:
    assert idle_share(spans(*pairs)) == 0


lengths = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=20)


@given(lengths)
def test_busy_and_idle_make_the_whole(pairs: list[tuple[int, int]]) -> None:
    found, now = [], 0
    for busy, idle in pairs:
        found.append((now, now + busy))
        now += busy + idle
    total = now - pairs[-1][1]
    idle = sum(idle for _, idle in pairs[:-1])
    assert idle_share(spans(*found)) == pytest.approx(idle / total)


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), max_size=20))
def test_spans_of_one_lane_never_overlap_or_run_backwards(
    pairs: list[tuple[float, float]],
) -> None:
    lane: list[Span] = []
    for number, (start, end) in enumerate(pairs):
        append_span(lane, start, end, number)
    assert all(span.end >= span.start for span in lane)
    assert all(right.start >= left.end for left, right in itertools.pairwise(lane))
