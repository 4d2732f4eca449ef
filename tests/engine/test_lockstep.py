"""Ranks that work in lockstep: one's success never hides another's failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from omni_platforms import (
    ExecutorClosedError,
    MultiprocExecutor,
    OutputDroppedError,
    RankOutOfStepError,
    RequestRejectedError,
    UnknownMethodError,
    WorkerAsleepError,
)
from omni_platforms.engine import board as board_module
from omni_platforms.engine.dispatch import Work
from omni_platforms.engine.ledger_records import Outcome
from omni_platforms.engine.messages import Call, Drop, Execute, Kind
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.replies import Replies
from tests.engine.fakes import PATIENCE, FakeWorker, dropping, executor_of, record, until

Ranks = tuple[MultiprocExecutor, list[FakeWorker]]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    with executor_of(monkeypatch, 4, mode="lockstep") as pair:
        yield pair


def begin_all(workers: list[FakeWorker]) -> str:
    (name,) = {worker.begin() for worker in workers}
    return name


def test_every_rank_gets_every_request_and_one_delivers(ranks: Ranks) -> None:
    executor, workers = ranks
    future = executor.submit("request", stepwise=True, previews=2)
    messages = [worker.hear(Execute) for worker in workers]
    assert [message.previews for message in messages] == [2, 0, 0, 0], "one rank's suffice"
    name = future.async_output_id
    workers[0].computed(name)
    workers[0].output(name, "out")
    for worker in workers[1:3]:
        worker.computed(name)
    until(lambda: workers[0].view.unpacked)
    assert not future.done()
    waiting = executor.wait_output_ready(name)
    assert not waiting.done(), "held until every rank is done"
    workers[3].computed(name)
    assert future.result(PATIENCE).id == name
    assert waiting.result(PATIENCE) == "out"


@pytest.mark.parametrize("how", ["execute", "call"])
def test_rank_two_of_four_fails_in_every_order(ranks: Ranks, how: str) -> None:
    executor, workers = ranks
    for order in permutations(range(4)):
        if how == "execute":
            future: Any = executor.submit("request")
            name = begin_all(workers)
        else:
            name, future = executor._ask.call("method")
            for worker in workers:
                worker.hear(Call)
        for rank in order:
            error = record(ValueError("rank 2") if rank == 2 else None)
            if how == "execute":
                workers[rank].say(Kind.COMPUTE_DONE, name, error=error)
                if rank == 0:
                    workers[0].output(name, "rank 0's success")
            else:
                result = Pickled.of(rank)
                workers[rank].say(Kind.RPC_RESULT, name, result=result, error=error)
        with pytest.raises(ValueError, match="rank 2") as caught:
            future.result(PATIENCE)
        assert list(caught.value.rank_errors) == [2]
        assert "ValueError: rank 2" in str(caught.value.__cause__), "with its traceback"
    until(lambda: not any(executor.describe_pending_state().at_workers))
    assert not executor.describe_pending_state().outputs, "rank 0's output is not kept"
    assert executor.check_health()


def first_answer_wins(self: Replies, work: Work) -> Outcome:
    """The mistake: rank 0's answer stands for all."""
    return work.replies._outcomes[0]


def test_planted_rank_0_answers_for_all(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replies, "_result", first_answer_wins)
    with pytest.raises(pytest.fail.Exception):
        test_rank_two_of_four_fails_in_every_order(ranks, "execute")


def test_an_internal_error_beats_a_rejected_request(ranks: Ranks) -> None:
    executor, workers = ranks
    future = executor.submit("request")
    name = begin_all(workers)
    workers[0].computed(name, RequestRejectedError("too long"))
    workers[1].computed(name, OSError("disk"))
    workers[2].computed(name)
    workers[3].computed(name, RequestRejectedError("too long"))
    with pytest.raises(OSError, match="disk") as caught:
        future.result(PATIENCE)
    assert sorted(caught.value.rank_errors) == [0, 1, 3]  # type: ignore[attr-defined]


def test_ranks_that_do_not_answer_after_a_failure_end_the_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with executor_of(monkeypatch, 4, mode="lockstep", output_timeout=0.05) as (executor, workers):
        future = executor.submit("request")
        name = begin_all(workers)
        workers[1].computed(name)
        workers[2].computed(name, ValueError("rank 2"))
        error = future.exception(PATIENCE)
        assert isinstance(error, RankOutOfStepError)
        assert "workers [2] failed" in str(error)
        assert "workers [0, 3] had not answered" in str(error)
        assert isinstance(error.__cause__, ValueError)
        assert not executor.check_health()


def test_ranks_that_answer_in_time_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with executor_of(monkeypatch, 2, mode="lockstep", output_timeout=5.0) as (executor, workers):
        future = executor.submit("request")
        name = begin_all(workers)
        workers[0].computed(name, ValueError("rank 0"))
        until(lambda: executor._engine.replies._deadlines)
        (timer,) = executor._engine.replies._deadlines.values()
        workers[1].computed(name)
        assert isinstance(future.exception(PATIENCE), ValueError)
        timer.join(PATIENCE)
        assert not timer.is_alive(), "nothing is watched any more"
        assert not executor._engine.replies._deadlines
        assert executor.check_health()


# Drops: a rank that skipped a forward would leave the others waiting in a collective --------------


def test_a_drop_waits_for_the_forward_of_all_ranks(ranks: Ranks) -> None:
    executor, workers = ranks
    executor.submit("first")
    first = begin_all(workers)
    second = executor.submit("second").async_output_id
    assert begin_all(workers) == second
    drop = dropping(executor, second)
    until(lambda: executor.describe_pending_state().unacknowledged)
    assert workers[0].hears_nothing(), "it may not skip the forward"
    for name in (first, second):
        for worker in workers:
            worker.computed(name)
    assert workers[0].hear(Drop).ids == (second,)
    workers[0].say(Kind.DROPPED, second)
    assert drop.result(PATIENCE)
    assert all(worker.hears_nothing() for worker in workers[1:])


def test_planted_a_drop_that_one_rank_hears_at_once(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell_at_once(self: board_module.Board, job_id: str, effects: Any) -> None:
        self.links[effects.rank or 0].put(Drop(tuple(effects.tell)))

    monkeypatch.setattr(board_module.Board, "_tell", tell_at_once)
    with pytest.raises(AssertionError, match="skip the forward"):
        test_a_drop_waits_for_the_forward_of_all_ranks(ranks)


def test_a_request_that_no_rank_has_is_withdrawn_from_all(ranks: Ranks) -> None:
    executor, workers = ranks
    futures = [executor.submit(n) for n in range(4)]
    names = [begin_all(workers), begin_all(workers)]
    assert executor.drop_output(futures[2].async_output_id)
    with pytest.raises(OutputDroppedError):
        futures[2].result(PATIENCE)
    for rank in (2, 0, 3, 1):
        workers[rank].computed(names[0])
    assert begin_all(workers) == futures[3].async_output_id


# Sleep ------------------------------------------------------------------------------------------


def asleep(executor: MultiprocExecutor, method: str) -> tuple[threading.Thread, list[Any]]:
    """Call `sleep` or `wake_up` on a thread of its own."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(getattr(executor, method)(timeout=PATIENCE))
        except (ValueError, UnknownMethodError) as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def test_sleep_and_wake(ranks: Ranks) -> None:
    executor, workers = ranks
    thread, found = asleep(executor, "sleep")
    assert {worker.answer(worker.rank).method for worker in workers} == {"sleep"}
    thread.join(PATIENCE)
    assert found == [[0, 1, 2, 3]]
    with pytest.raises(WorkerAsleepError, match="wake_up"):
        executor.submit("request")
    thread, found = asleep(executor, "wake_up")
    assert {worker.answer("awake").method for worker in workers} == {"wake_up"}
    thread.join(PATIENCE)
    assert found == [["awake"] * 4]
    executor.submit("request")
    begin_all(workers)


def test_when_one_rank_refuses_to_sleep_the_others_are_woken(ranks: Ranks) -> None:
    executor, workers = ranks
    thread, found = asleep(executor, "sleep")
    for worker in workers:
        worker.answer(error=ValueError("busy") if worker.rank == 1 else None)
    for worker in (workers[0], *workers[2:]):
        assert worker.answer().method == "wake_up"
    thread.join(PATIENCE)
    (error,) = found
    assert isinstance(error, ValueError)
    assert workers[1].hears_nothing()
    executor.submit("request")
    begin_all(workers)


def test_requests_before_sleep_are_sent_before_it(ranks: Ranks) -> None:
    executor, workers = ranks
    for n in range(3):
        executor.submit(n)
    names = [begin_all(workers), begin_all(workers)]
    thread, _ = asleep(executor, "sleep")
    until(lambda: executor._ask.board.asleep)
    assert workers[0].hears_nothing()
    for worker in workers:
        worker.computed(names[0])
    begin_all(workers)
    for worker in workers:
        worker.answer()
    thread.join(PATIENCE)
    assert not thread.is_alive()


# Shutdown -----------------------------------------------------------------------------------------


def test_shutdown_delivers_what_was_submitted_and_fails_the_rest(ranks: Ranks) -> None:
    executor, workers = ranks
    futures = [executor.submit(n) for n in range(4)]
    waits = [executor.wait_output_ready(future.async_output_id) for future in futures]
    names = [begin_all(workers), begin_all(workers)]
    thread = threading.Thread(target=executor.shutdown, args=(1.5,), daemon=True)
    thread.start()
    until(lambda: executor._ask.board.closing)
    with pytest.raises(ExecutorClosedError, match="shut down"):
        executor.submit("too late")
    for worker in workers:
        worker.computed(names[0])
    workers[0].output(names[0], "delivered")
    assert waits[0].result(PATIENCE) == "delivered"
    thread.join(PATIENCE)
    for future in (*futures[1:], *waits[1:]):
        with pytest.raises(ExecutorClosedError, match="before this was done"):
            future.result(PATIENCE)
    executor.shutdown(), executor.shutdown(0.0)
    assert not executor.check_health()
    called: list[BaseException] = []
    executor.on_failure(called.append)
    assert not called, "a shutdown is no failure"
