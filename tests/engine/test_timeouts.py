"""Timeouts that name the stage, and calls with their replies."""

from __future__ import annotations

import threading

import pytest

from omni_platforms import (
    CallTimeoutError,
    OutputTimeoutError,
)
from omni_platforms.engine.messages import Drop, Execute, Kind
from omni_platforms.engine.payload import Pickled
from tests.engine.fakes import PATIENCE, FakeWorker, Pair, executor_of

# Timeouts ---------------------------------------------------------------------------------------


def test_a_timeout_names_the_stage_and_what_is_in_hand(pair: Pair) -> None:
    executor, worker = pair
    futures = [executor.submit(n) for n in range(3)]
    names = [future.async_output_id for future in futures]
    worker.begin()
    worker.computed(names[0])
    answers = threading.Thread(target=lambda: [_describe(worker) for _ in range(3)], daemon=True)
    futures[0].result()
    worker.begin()
    worker.begin()
    late = executor.submit("behind the window").async_output_id
    answers.start()
    for name, stage in [(names[0], "computed, and on its way"), (names[1], "has not finished")]:
        with pytest.raises(OutputTimeoutError, match=stage) as caught:
            executor.wait_output_ready(name).result(timeout=0.01)
        assert "worker 0 says: [{'id': 'r1', 'phase': 'copy'}]" in str(caught.value)
        assert "4 outputs are open; 1 requests wait" in str(caught.value)
    with pytest.raises(OutputTimeoutError, match="waiting in the parent"):
        executor.wait_output_ready(late).result(timeout=0.01)
    answers.join(PATIENCE)


def _describe(worker: FakeWorker) -> None:
    worker.answer([{"id": "r1", "phase": "copy"}])


def test_an_output_that_comes_after_a_timeout_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omni_platforms.engine.asking._ASK_S", 0.01)
    with executor_of(monkeypatch, output_timeout=0.01) as (executor, (worker,)):
        name = executor.submit("long").async_output_id
        worker.begin()
        waiting = executor.wait_output_ready(name)
        for _ in range(3):
            with pytest.raises(OutputTimeoutError, match="OMNI_ASYNC_OUTPUT_TIMEOUT"):
                waiting.result()
        with pytest.raises(OutputTimeoutError):
            waiting.exception()
        worker.computed(name)
        worker.output(name, "the finished render")
        assert waiting.result(PATIENCE) == "the finished render"


def test_a_timeout_that_is_the_requests_own_error_is_raised_as_it_is(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("request")
    worker.computed(worker.begin(), TimeoutError("the collective timed out"))
    with pytest.raises(TimeoutError, match="the collective timed out"):
        future.result(5)


def test_execute_model_that_times_out_drops_its_request(pair: Pair) -> None:
    executor, worker = pair
    with pytest.raises(OutputTimeoutError):
        executor.execute_model("request", timeout=0.01)
    name = worker.begin()
    assert worker.theirs.receive(PATIENCE).kind is Kind.CALL, "it was asked where it is"
    assert worker.hear(Drop).ids == (name,)


# Calls ------------------------------------------------------------------------------------------


def test_calls_get_their_own_replies_in_any_order_and_late_ones_are_counted(pair: Pair) -> None:
    executor, worker = pair
    with pytest.raises(CallTimeoutError, match=r"workers \[0\] did not answer slow\(\)"):
        executor.collective_rpc("slow", timeout=0.01)
    ask = executor._ask
    calls = [ask.call("method", (n,)) for n in range(3)]
    worker.answer("too late")
    for call_id, _ in reversed(calls):
        worker.say(Kind.RPC_RESULT, call_id, result=Pickled.of(call_id))
    for call_id, future in calls:
        assert future.result(PATIENCE)[0].load() == call_id
    assert executor.describe_pending_state().late == 1


def test_requests_and_calls_reach_the_worker_in_the_order_of_the_callers(pair: Pair) -> None:
    executor, worker = pair
    executor.submit(1)
    executor._ask.call("method")
    executor.submit(2)
    kinds = [worker.theirs.receive(PATIENCE).kind for _ in range(3)]
    assert kinds == [Kind.EXECUTE, Kind.CALL, Kind.EXECUTE]


def test_the_request_itself_arrives(pair: Pair) -> None:
    executor, worker = pair
    executor.submit({"prompt": "a cat"}, stepwise=True, previews=3)
    message = worker.hear(Execute)
    assert message.request.load() == {"prompt": "a cat"}
    assert (message.stepwise, message.previews) == (True, 3)
