"""Outputs that nobody wants, at every stage, and futures that are cancelled."""

from __future__ import annotations

import concurrent.futures
import pickle
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any

import pytest

from omni_platforms import (
    OutputDroppedError,
    OutputTimeoutError,
    ResultPumpError,
    WorkerDiedError,
)
from omni_platforms.engine import future as future_module
from omni_platforms.engine.ledger_records import Outcome
from omni_platforms.engine.messages import Drop, Kind
from omni_platforms.engine.payload import Blob
from omni_platforms.engine.pump import ResultPump
from tests.engine.fakes import PATIENCE, FakeWorker, Pair, dropping, executor_of, record, until

# Drops ----------------------------------------------------------------------------------------


def test_a_drop_resolves_when_the_worker_has_acknowledged_it(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("request")
    name = worker.begin()
    drop = dropping(executor, name)
    assert worker.hear(Drop).ids == (name,)
    with pytest.raises(OutputDroppedError):
        future.result()
    with pytest.raises(OutputDroppedError):
        executor.wait_output_ready(name)
    assert not drop.done()
    worker.computed(name)
    worker.say(Kind.DROPPED, name)
    assert drop.result(PATIENCE) is True
    assert executor.drop_output(name) is False, "again: nothing is left to drop"


def test_a_drop_that_nobody_acknowledges_times_out(pair: Pair) -> None:
    executor, worker = pair
    name = executor.submit("request").async_output_id
    worker.begin()
    with pytest.raises(OutputTimeoutError, match="may still be in use"):
        executor.drop_output(name, timeout=0.01)


def test_a_request_that_the_worker_had_not_begun_frees_its_place(pair: Pair) -> None:
    """The worker acknowledges it, and says nothing of its forward."""
    executor, worker = pair
    futures = [executor.submit(n) for n in range(3)]
    names = [worker.begin(), worker.begin()]
    drop = dropping(executor, names[1])
    worker.hear(Drop)
    worker.say(Kind.DROPPED, names[1])
    assert worker.begin() == futures[2].async_output_id
    assert drop.result(PATIENCE)
    assert executor.describe_pending_state().late == 0


def test_a_request_that_waits_in_the_parent_is_withdrawn(pair: Pair) -> None:
    executor, worker = pair
    futures = [executor.submit(n) for n in range(3)]
    names = [worker.begin(), worker.begin()]
    assert futures[2].cancel()
    assert executor.drop_output(futures[2].async_output_id) is False
    worker.computed(names[0])
    assert worker.hears_nothing()
    assert executor.describe_pending_state().queued == 0


def test_a_member_of_a_batch_that_waits_is_dropped_behind_it(pair: Pair) -> None:
    executor, worker = pair
    for n in range(2):
        executor.submit(n)
    batch = executor.submit_batch({"x": 1, "y": 2})
    names = [worker.begin(), worker.begin()]
    drop = dropping(executor, f"{batch.async_output_id}/x")
    until(lambda: executor.describe_pending_state().unacknowledged)
    worker.computed(names[0])
    assert worker.begin_batch().id == batch.async_output_id
    assert worker.hear(Drop).ids == (f"{batch.async_output_id}/x",)
    worker.say(Kind.DROPPED, f"{batch.async_output_id}/x")
    assert drop.result(PATIENCE)


def test_an_output_that_comes_after_its_drop_is_thrown_away_and_counted(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("request")
    name = worker.begin()
    worker.computed(name)
    future.result()
    drop = dropping(executor, name)
    worker.hear(Drop)
    worker.output(name, "too late")
    worker.say(Kind.DROPPED, name)
    assert drop.result(PATIENCE)
    assert worker.view.discarded == ["too late"]
    assert not worker.view.unpacked
    assert executor.describe_pending_state().late == 1


def announced(worker: FakeWorker, value: Any) -> str:
    """Hear a request, and announce its output, which the device is still writing."""
    name = worker.begin()
    worker.computed(name)
    worker.say(Kind.OUTPUT_COMING, name, packet=Blob(pickle.dumps(value)))
    until(lambda: worker.view.unpacked or worker.view.discarded)
    return name


def test_an_announced_output_is_unpacked_early_and_seen_when_it_is_ready(pair: Pair) -> None:
    executor, worker = pair
    waiting = executor.wait_output_ready(executor.submit("request").async_output_id)
    name = announced(worker, "out")
    assert worker.view.unpacked == ["out"]
    assert not concurrent.futures.wait([waiting], 0.05).done, "its bytes are not there"
    worker.say(Kind.OUTPUT_READY, name)
    assert waiting.result(PATIENCE) == "out"
    assert not executor._engine.crew.pumps[0]._coming


def test_planted_an_announced_output_that_is_shown_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResultPump, "_announced", ResultPump._output)
    with pytest.raises(AssertionError):
        test_an_announced_output_is_unpacked_early_and_seen_when_it_is_ready(pair)


@pytest.mark.parametrize("how", ["fails", "dropped", "dropped before", "dies"])
def test_an_announced_output_that_is_never_ready_is_not_seen(pair: Pair, how: str) -> None:
    executor, worker = pair
    waiting = executor.wait_output_ready(executor.submit("request").async_output_id)
    if how == "dropped before":
        drop = dropping(executor, waiting.async_output_id)
        until(waiting.done)
    name = announced(worker, "half written")
    if how == "fails":
        worker.say(Kind.OUTPUT_READY, name, error=record(OSError("device")))
        assert isinstance(waiting.exception(PATIENCE), OSError)
    elif how == "dies":
        worker.die()
        assert isinstance(waiting.exception(PATIENCE), WorkerDiedError)
    else:
        drop = drop if how == "dropped before" else dropping(executor, name)
        worker.hear(Drop)
        worker.say(Kind.DROPPED, name)
        assert drop.result(PATIENCE)
        assert isinstance(waiting.exception(PATIENCE), OutputDroppedError)
        assert worker.view.discarded == (["half written"] if how == "dropped before" else [])
    assert not executor._engine.crew.pumps[0]._coming, "its memory is given back"


def test_an_output_that_nobody_has_asked_for_is_let_go_at_once(pair: Pair) -> None:
    executor, worker = pair
    name = executor.submit("request").async_output_id
    worker.begin()
    worker.computed(name)
    worker.output(name, "out")
    until(lambda: worker.view.unpacked)
    assert executor.drop_output(name)
    assert worker.hears_nothing(), "the worker has no memory in use for it"


def test_cancelling_the_future_of_an_output_drops_it(pair: Pair) -> None:
    executor, worker = pair
    name = executor.submit("request").async_output_id
    worker.begin()
    worker.computed(name)
    waiting = executor.wait_output_ready(name)
    assert waiting.cancel()
    assert waiting.cancel(), "again"
    assert worker.hear(Drop).ids == (name,)
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(OutputDroppedError):
        executor.wait_output_ready(name)


# Futures that are cancelled while they are settled ----------------------------------------------


class CancelsItself(future_module.EngineFuture):
    """Is cancelled between any look at it and what follows."""

    def done(self) -> bool:
        found = super().done()
        if not found:
            self.cancel()
        return found


def naive(future: Future[Any], outcome: Outcome) -> None:
    """The mistake: a look, then a call."""
    if not future.done():
        future.set_result(outcome.value)


@pytest.mark.parametrize("settle", [future_module.settle, naive])
def test_a_future_cancelled_at_the_worst_moment_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, settle: Any
) -> None:
    monkeypatch.setattr("omni_platforms.engine.asking.EngineFuture", CancelsItself)
    monkeypatch.setattr(future_module, "settle", settle)
    with executor_of(monkeypatch) as (executor, (worker,)):
        executor.submit("request")
        name = worker.begin()
        waiting = executor.wait_output_ready(name)
        worker.computed(name)
        if settle is naive:
            until(lambda: not executor.check_health())
            assert isinstance(executor.failure, ResultPumpError)
            assert isinstance(executor.failure.__cause__, InvalidStateError)
            return
        worker.output(name, "out")
        until(lambda: len(worker.view.unpacked) + len(worker.view.discarded) == 1)
        assert Future.done(waiting)
        executor.submit("next")
        assert executor.check_health()


def test_a_callback_that_exits_ends_no_pump(pair: Pair) -> None:
    executor, worker = pair

    def leave(future: Future[Any]) -> None:
        raise SystemExit(3)

    executor.submit("request").add_done_callback(leave)
    name = worker.begin()
    worker.computed(name)
    worker.output(name, "out")
    assert executor.wait_output_ready(name).result() == "out"
    assert executor.check_health()
