"""Workers that come, leave and are lost, as fakes: nothing else is lost with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from omni_platforms import (
    DrainTimeoutError,
    ExecutorClosedError,
    OutputDroppedError,
    WorkerAsleepError,
    WorkerDiedError,
)
from omni_platforms.engine.board import Board
from omni_platforms.engine.elastic import ElasticEngine
from omni_platforms.engine.interface import Executor
from omni_platforms.engine.messages import Call, Drop, Execute, Kind, Started, Stop
from omni_platforms.engine.payload import Pickled
from tests.engine.fakes import PATIENCE, FakeWorker, until


class Elastic(Executor):
    """An executor whose workers are fakes."""

    def __init__(self, workers: list[FakeWorker], **options: Any) -> None:
        options = {"window": 2, "lockstep": False, "output_rank": 0, "retries": 0, **options}
        started = [Started() for _ in workers]
        self.engine = ElasticEngine(workers, started, output_timeout=PATIENCE, **options)
        super().__init__(self.engine)

    def add(self) -> FakeWorker:
        rank = self.engine.next_rank()
        worker = FakeWorker(rank)
        self.engine.add(rank, worker, Started())
        return worker


@contextmanager
def elastic(count: int, **options: Any) -> Iterator[tuple[Elastic, list[FakeWorker]]]:
    workers = [FakeWorker(rank) for rank in range(count)]
    executor = Elastic(workers, **options)
    try:
        yield executor, workers
    finally:
        crew = executor.engine.crew
        threads = [each.thread for each in (*crew.pumps.values(), *crew.senders.values())]
        executor.shutdown(0.0)
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        for worker in workers:
            worker.theirs.close()


def in_thread(call: Any) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except Exception as error:  # noqa: BLE001  the test looks at it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


# A worker is lost -------------------------------------------------------------------------------


def test_a_lost_worker_costs_the_requests_that_it_had_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with elastic(2, window=1) as (executor, (first, second)):
        losses: list[tuple[int, BaseException]] = []
        executor.engine.on_loss(lambda rank, error: losses.append((rank, error)))
        futures = [executor.submit(n) for n in range(4)]
        at_first, at_second = first.begin(), second.begin()
        second.computed(at_second)
        second.output(at_second, "arrived before")
        second.begin()
        assert executor.wait_output_ready(at_second).result(PATIENCE) == "arrived before"
        second.die()
        for future in (futures[2], executor.wait_output_ready(futures[2].async_output_id)):
            with pytest.raises(WorkerDiedError, match=r"worker 1 .* killed by SIGKILL"):
                future.result(PATIENCE)
        until(lambda: losses)
        assert losses[0][0] == 1
        assert "worker_lost rank=1 left=1" in caplog.text
        first.computed(at_first)
        waited = first.begin()
        assert waited == futures[3].async_output_id, "what waited goes to the other one"
        first.computed(waited)
        assert futures[3].result(PATIENCE).id == waited
        until(executor.check_health)
        assert executor.failure is None
        until(lambda: len(executor.workers) == 1)


def test_an_output_that_was_computed_and_not_here_fails_with_its_worker() -> None:
    with elastic(2) as (executor, (first, second)):
        done = executor.submit("request")
        name = first.begin()
        first.computed(name)
        assert done.result(PATIENCE).id == name
        waiting = executor.wait_output_ready(name)
        first.die()
        with pytest.raises(WorkerDiedError):
            waiting.result(PATIENCE)
        other = executor.submit("next")
        assert second.begin() == other.async_output_id


def test_the_last_workers_loss_is_the_executors_failure() -> None:
    with elastic(2) as (executor, (first, second)):
        first.die()
        until(lambda: len(executor.workers) == 1)
        future = executor.submit("request")
        second.begin()
        second.die()
        with pytest.raises(WorkerDiedError, match="worker 1"):
            future.result(PATIENCE)
        with pytest.raises(ExecutorClosedError):
            executor.submit("next")


def test_in_lockstep_no_rank_can_be_missed() -> None:
    with elastic(2, lockstep=True) as (executor, (first, _)):
        future = executor.submit("request")
        first.die()
        with pytest.raises(WorkerDiedError, match="worker 0"):
            future.result(PATIENCE)
        until(lambda: executor.failure)
        with pytest.raises(ValueError, match="lockstep"):
            executor.engine.next_rank()


def test_calls_fail_for_the_rank_that_is_gone() -> None:
    with elastic(2) as (executor, (first, second)):
        answers = in_thread(lambda: executor.collective_rpc("method", PATIENCE))
        first.answer("fine")
        second.hear(Call)
        second.die()
        with pytest.raises(WorkerDiedError) as caught:
            answers.result(PATIENCE)
        assert list(caught.value.rank_errors) == [1]  # type: ignore[attr-defined]
        again = in_thread(lambda: executor.collective_rpc("method", PATIENCE))
        first.answer("fine")
        assert again.result(PATIENCE) == ["fine"], "who is gone is not asked"


def check_a_drop_is_acknowledged_when_its_worker_is_gone() -> None:
    with elastic(2) as (executor, (first, _)):
        name = executor.submit("request").async_output_id
        first.begin()
        dropped = in_thread(lambda: executor.drop_output(name, PATIENCE))
        first.hear(Drop)
        first.die()
        assert dropped.result(PATIENCE)


def test_a_drop_is_acknowledged_when_its_worker_is_gone() -> None:
    check_a_drop_is_acknowledged_when_its_worker_is_gone()


def test_planted_a_lost_workers_drops_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Board, rank: int, ids: Any) -> None:
        self.links[rank].put(Drop(tuple(ids)))

    monkeypatch.setattr(Board, "_put_drop", forgets)
    monkeypatch.setattr("tests.engine.ray.test_elastic.PATIENCE", 1.0)
    with pytest.raises(TimeoutError):
        check_a_drop_is_acknowledged_when_its_worker_is_gone()


# Retries ----------------------------------------------------------------------------------------


def check_one_retry(stage: str) -> None:
    """A request is sent again once, wherever it was when its worker was lost."""
    with elastic(3, window=1, retries=1) as (executor, workers):
        future = executor.submit("request")
        name = future.async_output_id
        waiting = executor.wait_output_ready(name)
        assert workers[0].begin() == name
        if stage == "copying":
            workers[0].computed(name)
            assert future.result(PATIENCE).id == name
        workers[0].die()
        assert workers[1].begin() == name, "again, by another one"
        assert not waiting.done()
        workers[1].die()
        with pytest.raises(WorkerDiedError, match="worker 1"):
            waiting.result(PATIENCE)
        other = executor.submit("other")
        name = workers[2].begin()
        workers[2].computed(name)
        workers[2].output(name, "here")
        assert executor.wait_output_ready(other.async_output_id).result(PATIENCE) == "here"
        assert not executor._ask.board._computed, "nothing is kept of what has arrived"


@pytest.mark.parametrize("stage", ["computing", "copying"])
def test_a_request_is_sent_again_once(stage: str) -> None:
    check_one_retry(stage)


def test_planted_what_was_computed_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Board, "keep_for_retry", lambda self, work: None)
    monkeypatch.setattr("tests.engine.fakes.PATIENCE", 1.0)
    with pytest.raises(TimeoutError):
        check_one_retry("copying")


def test_a_retry_that_fails_by_itself_raises_its_own_error() -> None:
    with elastic(2, retries=1) as (executor, (first, second)):
        future = executor.submit("request")
        name = first.begin()
        first.computed(name)
        future.result(PATIENCE)
        waiting = executor.wait_output_ready(name)
        first.die()
        assert second.begin() == name
        second.computed(name, ValueError("no such size"))
        with pytest.raises(ValueError, match="no such size"):
            waiting.result(PATIENCE)


def test_what_was_dropped_is_not_sent_again() -> None:
    with elastic(2, retries=1) as (executor, (first, second)):
        future = executor.submit("request")
        first.begin()
        dropped = in_thread(lambda: executor.drop_output(future.async_output_id, PATIENCE))
        first.hear(Drop)
        first.die()
        assert dropped.result(PATIENCE)
        with pytest.raises(OutputDroppedError):
            future.result(PATIENCE)
        executor.submit("next")
        assert second.hear(Execute).request.load() == "next"


# Workers come and leave -------------------------------------------------------------------------


def test_a_worker_that_is_added_gets_what_waits() -> None:
    with elastic(1, window=1) as (executor, (first,)):
        futures = [executor.submit(n) for n in range(3)]
        first.begin()
        second = executor.add()
        assert second.begin() == futures[1].async_output_id
        second.computed(futures[1].async_output_id)
        assert futures[1].result(PATIENCE)
        assert second.begin() == futures[2].async_output_id
        assert len(executor.workers) == 2
        answers = in_thread(lambda: executor.collective_rpc("method", PATIENCE))
        second.answer("new")
        first.answer("old")
        assert answers.result(PATIENCE) == ["old", "new"]


def test_a_sleeping_executor_takes_no_worker() -> None:
    with elastic(1) as (executor, (first,)):
        asleep = in_thread(lambda: executor.sleep(timeout=PATIENCE))
        first.answer()
        asleep.result(PATIENCE)
        with pytest.raises(WorkerAsleepError, match="wake_up"):
            executor.add()


def test_a_worker_that_is_removed_delivers_what_it_has_first() -> None:
    with elastic(2, window=1) as (executor, (first, second)):
        futures = [executor.submit(n) for n in range(3)]
        at_first, at_second = first.begin(), second.begin()
        removed = in_thread(lambda: executor.engine.remove(1, PATIENCE))
        until(lambda: executor._ask.ranks() == [0])
        second.computed(at_second)
        assert not removed.done(), "its output is not here"
        second.output(at_second, "out")
        second.hear(Stop)
        second.end()
        assert removed.result(PATIENCE) == 1
        assert executor.wait_output_ready(at_second).result(PATIENCE) == "out"
        first.computed(at_first)
        assert first.begin() == futures[2].async_output_id, "not sent to one that leaves"
        assert executor.check_health()
        with pytest.raises(ValueError, match="last worker"):
            executor.engine.remove(None, PATIENCE)
        with pytest.raises(ValueError, match="no worker 1"):
            executor.engine.remove(1, PATIENCE)


def test_a_removal_that_takes_too_long_is_undone() -> None:
    with elastic(2, window=1) as (executor, (first, second)):
        executor.submit(0)
        executor.submit(1)
        first.begin()
        name = second.begin()
        with pytest.raises(DrainTimeoutError, match="worker 1 was not done"):
            executor.engine.remove(1, 0.05)
        second.computed(name)
        second.output(name)
        waiting = executor.submit(2)
        assert second.begin() == waiting.async_output_id, "it serves on"


def test_a_worker_that_dies_while_it_leaves_is_removed_too() -> None:
    with elastic(2, window=1) as (executor, (first, second)):
        executor.submit(0)
        future = executor.submit(1)
        first.begin()
        second.begin()
        removed = in_thread(lambda: executor.engine.remove(1, PATIENCE))
        until(lambda: executor._ask.ranks() == [0])
        second.die()
        with pytest.raises(WorkerDiedError):
            future.result(PATIENCE)
        assert removed.result(PATIENCE) == 1
        until(lambda: len(executor.workers) == 1)


def test_previews_of_a_lost_worker_end() -> None:
    with elastic(2) as (executor, (first, _)):
        future = executor.submit("request", stepwise=True, previews=2)
        name = first.begin()
        first.die()
        assert list(future.previews or ()) == []
        with pytest.raises(WorkerDiedError):
            executor.wait_output_ready(name).result(PATIENCE)


def test_nothing_is_added_to_an_executor_that_has_ended() -> None:
    with elastic(1) as (executor, _):
        rank = executor.engine.next_rank()
        executor.shutdown(0.0)
        late = FakeWorker(rank)
        with pytest.raises(ExecutorClosedError):
            executor.engine.add(rank, late, Started())
        late.die()
        late.close()


def test_a_late_reply_of_a_lost_worker_is_counted() -> None:
    with elastic(2) as (executor, (first, second)):
        before = executor.describe_pending_state().late
        first.say(Kind.RPC_RESULT, "c99", result=Pickled.of(1))
        until(lambda: executor.describe_pending_state().late == before + 1)
        assert second.hears_nothing()
