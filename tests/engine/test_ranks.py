"""Answers of several ranks: none is hidden, none is waited for twice."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import permutations
from typing import Any

import pytest

from omni_platforms.engine.ledger_records import Outcome
from omni_platforms.engine.ranks import Calls, RankReplies, combine_errors
from omni_platforms.errors import RequestRejectedError, WorkerAsleepError


def test_values_come_in_the_order_of_the_ranks_whatever_came_first() -> None:
    for order in permutations(range(4)):
        replies = RankReplies(range(4))
        complete = [replies.add(rank, Outcome(rank * 10)) for rank in order]
        assert complete == [False, False, False, True]
        assert replies.combined() == Outcome([0, 10, 20, 30])


@pytest.mark.parametrize("failing", range(4))
def test_one_failure_is_never_hidden(failing: int) -> None:
    for order in permutations(range(4)):
        replies, error = RankReplies(range(4)), ValueError("rank")
        for rank in order:
            replies.add(rank, Outcome(error=error) if rank == failing else Outcome(rank))
        raised: Any = replies.combined().error
        assert raised is error
        assert repr(raised.rank_errors) == repr({failing: error})
        assert raised.rank_errors[failing] is not error, "a cycle would keep frames alive"


def test_a_rank_answers_once_and_a_stranger_never() -> None:
    replies = RankReplies([0, 1])
    assert not replies.add(0, Outcome(1))
    assert not replies.add(0, Outcome(2))
    assert not replies.add(7, Outcome(3))
    assert replies.add(1, Outcome(4))
    assert not replies.add(1, Outcome(5))
    assert replies.combined().value == [1, 4]


def test_an_internal_error_beats_a_rejection_and_all_are_attached() -> None:
    errors = {0: RequestRejectedError("too long"), 1: WorkerAsleepError("zzz"), 2: OSError("disk")}
    raised: Any = combine_errors(errors)
    assert raised is errors[2]
    assert repr(raised.rank_errors) == repr(errors)
    if hasattr(raised, "__notes__"):
        assert raised.__notes__[0] == "in worker 2"
        assert "worker 0: RequestRejectedError: too long" in raised.__notes__


def test_among_equals_the_lowest_rank_is_raised() -> None:
    errors = {3: ValueError("3"), 1: KeyError("1")}
    assert combine_errors(errors) is errors[1]


class Frozen(Exception):
    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


def test_an_exception_that_takes_no_attributes_is_raised_all_the_same() -> None:
    error = Frozen("x")
    assert combine_errors({0: error}) is error


def test_a_call_ends_with_its_last_answer_and_late_ones_are_counted() -> None:
    calls, future = Calls(), Future[Any]()
    calls.open("c1", [0, 2], future)
    assert not calls.reply(0, "c1", Outcome("a")).settle
    assert calls.describe() == {"c1": [2]}
    ((settled, outcome),) = calls.reply(2, "c1", Outcome("b")).settle
    assert (settled, outcome) == (future, Outcome(["a", "b"]))
    assert not calls.reply(2, "c1", Outcome("again")).settle
    assert (len(calls), calls.late) == (0, 1)


def test_a_call_that_was_given_up_gets_nothing() -> None:
    calls, future = Calls(), Future[Any]()
    calls.open("c1", [0, 1], future)
    calls.reply(0, "c1", Outcome())
    assert calls.give_up("c1") == {1}
    assert calls.give_up("c1") == set()
    assert not calls.reply(1, "c1", Outcome()).settle
    assert calls.late == 1
