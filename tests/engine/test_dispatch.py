"""Who gets which job, and when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.engine.dispatch import Dispatcher, Sends, Work
from omni_platforms.engine.messages import Execute
from omni_platforms.engine.payload import Pickled


def job(number: int) -> Work:
    name = f"r{number}"
    return Work(name, Execute(name, Pickled(b"")))


def names(sends: Sends) -> list[tuple[int, str]]:
    return [(rank, work.id) for rank, work in sends]


def test_the_next_job_is_at_the_worker_before_the_first_is_done() -> None:
    dispatcher = Dispatcher(1, window=2, lockstep=False)
    assert names(dispatcher.submit(job(1))) == [(0, "r1")]
    assert names(dispatcher.submit(job(2))) == [(0, "r2")]
    assert names(dispatcher.submit(job(3))) == []
    assert dispatcher.load() == (1, [2])
    assert names(dispatcher.finished(0, "r1")) == [(0, "r3")]


def test_the_least_busy_worker_gets_a_job() -> None:
    dispatcher = Dispatcher(2, window=2, lockstep=False)
    sends = [names(dispatcher.submit(job(n))) for n in range(4)]
    assert [send[0][0] for send in sends] == [0, 1, 0, 1]
    dispatcher.finished(1, "r1")
    dispatcher.finished(1, "r3")
    assert [names(dispatcher.submit(job(n)))[0][0] for n in (4, 5)] == [1, 1]


def test_in_lockstep_a_job_waits_for_the_slowest_rank() -> None:
    dispatcher = Dispatcher(2, window=1, lockstep=True)
    assert names(dispatcher.submit(job(1))) == [(0, "r1"), (1, "r1")]
    assert names(dispatcher.submit(job(2))) == []
    assert names(dispatcher.finished(0, "r1")) == []
    assert names(dispatcher.finished(1, "r1")) == [(0, "r2"), (1, "r2")]


def test_a_job_that_waits_can_be_withdrawn() -> None:
    dispatcher = Dispatcher(1, window=1, lockstep=False)
    dispatcher.submit(job(1))
    dispatcher.submit(job(2))
    dispatcher.submit(job(3))
    waiting = dispatcher.waiting("r2")
    assert waiting is not None
    assert dispatcher.waiting("r1") is None
    dispatcher.withdraw(waiting)
    assert names(dispatcher.finished(0, "r1")) == [(0, "r3")]


class IgnoresTheWindow(Dispatcher):
    def _ranks_with_room(self) -> list[int]:
        self._window = 100
        return super()._ranks_with_room()


class PrefersTheFirst(Dispatcher):
    def _ranks_with_room(self) -> list[int]:
        if self._lockstep:
            return super()._ranks_with_room()
        return [rank for rank, jobs in self._at_worker.items() if len(jobs) < self._window][:1]


class LosesWhatWaits(Dispatcher):
    def finished(self, rank: int, job_id: str) -> Sends:
        self._at_worker[rank].pop(job_id, None)
        return []


def check(make: Callable[..., Dispatcher], workers: int, lockstep: bool, steps: list[int]) -> None:
    """Submit on 0; otherwise let a worker finish its oldest. Everybody keeps to the rules."""
    dispatcher = make(workers, 2, lockstep)
    at: list[list[str]] = [[] for _ in range(workers)]
    got: list[list[str]] = [[] for _ in range(workers)]
    count = 0
    for step in [*steps, *([1, 2, 3] * len(steps))]:
        rank = step % workers
        if step == 0:
            count += 1
            sends = dispatcher.submit(job(count))
        elif at[rank]:
            sends = dispatcher.finished(rank, at[rank].pop(0))
        else:
            continue
        for to, work in sends:
            assert lockstep or len(at[to]) == min(map(len, at)), "the least busy"
            at[to].append(work.id)
            got[to].append(work.id)
        assert max(map(len, at)) <= 2, "the window"
    order = [f"r{n}" for n in range(1, count + 1)]
    if lockstep:
        assert all(names == order for names in got)
    else:
        assert sorted(chain.from_iterable(got), key=order.index) == order
        assert all(names == sorted(names, key=order.index) for names in got)


@given(st.integers(1, 3), st.booleans(), st.lists(st.integers(0, 3), max_size=30))
def test_everything_is_sent_once_in_order_within_the_window(
    workers: int, lockstep: bool, steps: list[int]
) -> None:
    check(Dispatcher, workers, lockstep, steps)


@pytest.mark.parametrize("bug", [IgnoresTheWindow, PrefersTheFirst, LosesWhatWaits])
def test_a_planted_bug_is_found(bug: Callable[..., Dispatcher]) -> None:
    with pytest.raises(AssertionError):
        check(bug, 2, False, [0] * 8)
