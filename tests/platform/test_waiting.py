"""Waiting for an event: how late, how often it asks, and whose time it may change."""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any

import pytest

from omni_platforms.platform import waiting


class Clock:
    """Time that passes only where the code under test lets it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def event(self, after: float) -> Any:
        """Return an event that completes `after` seconds from now; asking takes 1 us."""
        due, clock = self.now + after, self

        class Event:
            def query(self) -> bool:
                clock.asked += 1
                clock.now += 1e-6
                return clock.now >= due

        return Event()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setattr(waiting, "_habit", waiting._Habit())
    return clock


def lateness(clock: Clock, seconds: float) -> float:
    due = clock.now + seconds
    assert waiting.wait_for_event(clock.event(seconds))
    return clock.now - due


def test_a_first_wait_is_at_most_two_percent_and_a_millisecond_late(clock: Clock) -> None:
    for seconds in (1e-4, 1e-3, 0.03, 2.0):
        assert lateness(clock, seconds) <= min(1e-3, seconds * 0.02 + 25e-6) + 1e-6


@pytest.mark.parametrize("seconds", [0.003, 0.0199, 0.047])
def test_a_wait_like_the_last_ones_is_hardly_late(clock: Clock, seconds: float) -> None:
    for _ in range(3):
        waiting.wait_for_event(clock.event(seconds))
    assert lateness(clock, seconds * 1.02) <= max(22e-6, seconds * 0.00103)
    assert lateness(clock, seconds * 0.97) <= max(22e-6, seconds * 0.00103)


def test_without_the_habit_the_same_wait_is_late(clock: Clock, monkeypatch: Any) -> None:
    """The planted bug: nothing is remembered."""
    monkeypatch.setattr(waiting, "_REMEMBERED", 4)
    for _ in range(3):
        waiting.wait_for_event(clock.event(0.047))
    assert lateness(clock, 0.047 * 1.02) > 100e-6


def test_waits_of_many_lengths_are_not_waited_for_with_short_pauses(clock: Clock) -> None:
    for seconds in (0.01, 0.2, 0.05):
        waiting.wait_for_event(clock.event(seconds))
    clock.asked = 0
    waiting.wait_for_event(clock.event(1.0))
    assert clock.asked < 1400


def test_a_wait_that_outlives_its_habit_asks_seldom_again(clock: Clock) -> None:
    for _ in range(3):
        waiting.wait_for_event(clock.event(0.01))
    clock.asked = 0
    waiting.wait_for_event(clock.event(2.0))
    assert clock.asked < 2500


def test_a_timeout_is_kept_and_is_no_habit(clock: Clock) -> None:
    assert not waiting.wait_for_event(clock.event(1.0), timeout=0.05)
    assert clock.now == pytest.approx(0.05, abs=1e-4)
    assert not waiting._habit.waits


def test_each_thing_that_is_waited_for_has_a_habit_of_its_own(clock: Clock) -> None:
    for _ in range(3):
        with waiting.waiting_for("computing"):
            waiting.wait_for_event(clock.event(0.020))
        with waiting.waiting_for("copying"):
            waiting.wait_for_event(clock.event(0.003))
    with waiting.waiting_for("computing"):
        assert lateness(clock, 0.020) <= 24e-6
    with waiting.waiting_for("copying"):
        assert lateness(clock, 0.003) <= 24e-6
    assert not waiting._habit.waits


def test_a_thread_that_spares_others_asks_seldom(clock: Clock) -> None:
    waiting.spare_others()
    for _ in range(3):
        waiting.wait_for_event(clock.event(0.0094))
    for share in (0.98, 1.0, 1.02):
        clock.asked = 0
        assert lateness(clock, 0.0094 * share) <= 0.0094 * 0.011
        assert clock.asked <= 12
    clock.asked = 0
    waiting.wait_for_event(clock.event(1.0))
    assert clock.asked < 1100, "also where the wait outlives its habit"


def test_it_asks_often_while_nobody_is_busy(clock: Clock) -> None:
    busy = [True]
    waiting.spare_others(lambda: busy[0])
    for _ in range(3):
        waiting.wait_for_event(clock.event(0.0094))
    busy[0] = False
    assert lateness(clock, 0.0094) <= 22e-6


def test_a_sparing_wait_keeps_its_timeout(clock: Clock) -> None:
    waiting.spare_others()
    for _ in range(3):
        waiting.wait_for_event(clock.event(0.5))
    start = clock.now
    assert not waiting.wait_for_event(clock.event(1.0), timeout=0.05)
    assert clock.now - start == pytest.approx(0.05, abs=1e-4)


def test_a_habit_is_the_threads_own(clock: Clock) -> None:
    for _ in range(3):
        waiting.wait_for_event(clock.event(0.01))
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(len(waiting._habit.waits)))
    thread.start()
    thread.join()
    assert seen == [0]
    assert len(waiting._habit.waits) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's prctl(2)")
def test_exact_pauses_are_the_calling_threads_alone() -> None:
    get_slack = 30  # PR_GET_TIMERSLACK, of the calling thread
    libc = ctypes.CDLL(None)
    before = libc.prctl(get_slack, 0, 0, 0, 0)
    seen: list[int] = []

    def own_thread() -> None:
        waiting.use_exact_pauses()
        seen.append(libc.prctl(get_slack, 0, 0, 0, 0))

    thread = threading.Thread(target=own_thread)
    thread.start()
    thread.join()
    assert seen == [1000]
    assert libc.prctl(get_slack, 0, 0, 0, 0) == before > 1000
