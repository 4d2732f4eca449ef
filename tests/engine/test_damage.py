"""Damaged messages, pumps that die, workers that die."""

from __future__ import annotations

import time
from typing import Any

import pytest

from omni_platforms import (
    CorruptMessageError,
    CorruptPacketError,
    ExecutorClosedError,
    ResultPumpError,
    WaitInCallbackError,
    WorkerDiedError,
)
from omni_platforms.engine.messages import AsyncOutput, Drop, Ended, Kind, Unreadable
from omni_platforms.engine.payload import Blob
from omni_platforms.engine.pump import ResultPump
from omni_platforms.engine.wire import encode
from tests.engine.fakes import PATIENCE, FakeWorker, Pair, dropping, executor_of, record, until

# Messages that are damaged ----------------------------------------------------------------------


def damaged(message: AsyncOutput) -> bytes:
    """Return the bytes of a message whose fields do not fit their checksum."""
    header, name, check, fields, *blobs = encode(message)
    return b"".join([header, name, check, bytes(b ^ 1 for b in fields), *blobs])


def test_a_damaged_output_costs_itself_and_its_siblings_arrive(pair: Pair) -> None:
    executor, worker = pair
    executor.submit_batch({"x": 1, "y": 2, "z": 3})
    batch = worker.begin_batch().id
    worker.computed(batch)
    worker.output(f"{batch}/x", "x")
    worker.say_bytes(damaged(AsyncOutput(Kind.OUTPUT_READY, f"{batch}/y", packet=Blob(b"..."))))
    worker.output(f"{batch}/z", "z")
    assert executor.wait_output_ready(f"{batch}/x").result() == "x"
    assert executor.wait_output_ready(f"{batch}/z").result() == "z"
    with pytest.raises(CorruptMessageError):
        executor.wait_output_ready(f"{batch}/y").result()
    assert executor.check_health()


def test_a_packet_that_cannot_be_unpacked_costs_itself(pair: Pair) -> None:
    executor, worker = pair
    for packet in (Blob(b"damaged"), Blob(b"no pickle"), None):
        name = executor.submit("request").async_output_id
        worker.begin()
        worker.computed(name)
        worker.say(Kind.OUTPUT_READY, name, packet=packet)
        error = executor.wait_output_ready(name).exception()
        assert isinstance(error, Exception)
        assert isinstance(error, CorruptPacketError) == (packet == Blob(b"damaged"))
        if packet == Blob(b"damaged"):
            assert worker.hear(Unreadable).id == name
    assert executor.check_health()


def test_a_damaged_compute_done_fails_its_request_and_frees_its_place(pair: Pair) -> None:
    executor, worker = pair
    futures = [executor.submit(n) for n in range(3)]
    name = worker.begin()
    worker.begin()
    worker.say_bytes(damaged(AsyncOutput(Kind.COMPUTE_DONE, name)))
    with pytest.raises(CorruptMessageError):
        futures[0].result()
    assert worker.begin() == futures[2].async_output_id


def test_other_damaged_messages_cost_what_they_stood_for(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("request", stepwise=True, previews=1)
    name = worker.begin()
    worker.say_bytes(damaged(AsyncOutput(Kind.PREVIEW, f"{name}@1")))
    assert worker.hear(Unreadable).id == f"{name}@1"
    assert worker.theirs.receive(PATIENCE).kind is Kind.PREVIEW_TAKEN
    drop = dropping(executor, name)
    worker.hear(Drop)
    worker.say_bytes(damaged(AsyncOutput(Kind.DROPPED, name)))
    assert drop.result(PATIENCE)
    call_id, answer = executor._ask.call("method")
    worker.say_bytes(damaged(AsyncOutput(Kind.RPC_RESULT, call_id)))
    assert isinstance(answer.exception(PATIENCE), CorruptMessageError)
    assert future.done()
    assert executor.check_health()


def test_messages_that_no_worker_sends_are_passed_over(pair: Pair) -> None:
    executor, worker = pair
    worker.theirs.send(Drop(("r1",)))
    worker.say(Kind.COMPUTE_DONE, "r99")
    worker.say(Kind.RPC_RESULT, "c99")
    worker.say(Kind.DROPPED, "r99")
    worker.output("r99", "stray")
    until(lambda: executor.describe_pending_state().late == 3)
    assert worker.view.discarded == ["stray"]
    assert executor.check_health()


def test_a_message_that_says_not_even_whose_it_is_ends_the_executor(pair: Pair) -> None:
    """Somebody waits for what it was, and cannot be told otherwise."""
    executor, worker = pair
    future = executor.submit("request")
    worker.begin()
    worker.say_bytes(b"\0" * 64)
    with pytest.raises(CorruptMessageError):
        future.result()
    until(lambda: not executor.check_health())
    with pytest.raises(ExecutorClosedError) as caught:
        executor.submit("next")
    assert isinstance(caught.value.__cause__, CorruptMessageError)


# A pump that dies -------------------------------------------------------------------------------


def kill_by_unpack(worker: FakeWorker, error: BaseException) -> None:
    def unpack(packet: Any) -> Any:
        raise error

    worker.view.unpack = unpack  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_pump_that_is_killed_fails_everything_with_its_cause(
    pair: Pair, kind: type[BaseException]
) -> None:
    executor, worker = pair
    causes: list[BaseException] = []
    executor.on_failure(causes.append)
    futures = [executor.submit(n) for n in range(4)]
    name = worker.begin()
    worker.computed(name)
    waiting = executor.wait_output_ready(name)
    kill_by_unpack(worker, kind("injected"))
    started = time.monotonic()
    worker.output(name, "out")
    errors = [future.exception(PATIENCE) for future in [waiting, *futures[1:]]]
    assert time.monotonic() - started < 1
    assert executor.check_health() is False
    for error in errors:
        assert isinstance(error, ResultPumpError)
        assert isinstance(error.__cause__, kind)
    with pytest.raises(ExecutorClosedError, match="injected"):
        executor.submit("next")
    until(lambda: causes == [executor.failure])
    executor.on_failure(causes.append)
    assert len(causes) == 2, "who asks later is told at once"


def test_a_pump_that_dies_in_silence_is_seen_by_the_health_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ResultPump, "_run", lambda self: None)
    with executor_of(monkeypatch) as (executor, _):
        until(lambda: not executor._engine.crew.pumps[0].thread.is_alive())
        future = executor.submit("request")
        assert executor.check_health() is False
        with pytest.raises(ResultPumpError, match="omni-pump-0"):
            future.result()


def test_a_sender_that_fails_ends_the_executor(pair: Pair) -> None:
    executor, _ = pair
    executor._engine.crew.senders[0].put("no message")  # type: ignore[arg-type]
    until(lambda: not executor.check_health())
    assert isinstance(executor.failure, ResultPumpError)


def test_a_callback_that_waits_for_what_it_holds_up_is_told_so(pair: Pair) -> None:
    executor, worker = pair
    errors: list[BaseException | None] = []
    first, second = executor.submit(1), executor.submit(2)

    def wait(_: Any) -> None:
        for ask in (second.result, second.exception, lambda: executor.collective_rpc("method")):
            try:
                ask()
            except WaitInCallbackError as error:
                errors.append(error)

    first.add_done_callback(wait)
    names = [worker.begin(), worker.begin()]
    for name in names:
        worker.computed(name)
    assert second.result().id == names[1]
    assert len(errors) == 3


# A worker that dies -----------------------------------------------------------------------------


def test_what_had_arrived_is_delivered_after_the_workers_death(pair: Pair) -> None:
    executor, worker = pair
    futures = [executor.submit(n) for n in range(3)]
    names = [worker.begin(), worker.begin()]
    waiting = executor.wait_output_ready(names[1])
    for name in names:
        worker.computed(name)
    worker.begin()
    worker.output(names[0], "arrived, and nobody had asked")
    worker.die()
    for future in (waiting, futures[2]):
        with pytest.raises(WorkerDiedError, match=r"killed by SIGKILL.*\n?.*a word"):
            future.result(PATIENCE)
    assert executor.wait_output_ready(names[0]).result() == "arrived, and nobody had asked"
    assert executor.check_health() is False
    assert futures[0].result().id == names[0]


def test_a_failure_of_the_worker_itself_is_the_cause(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("request")
    worker.theirs.send(Ended(record(OSError("device lost"))))
    worker.die()
    with pytest.raises(WorkerDiedError, match="device lost") as caught:
        future.result(PATIENCE)
    assert isinstance(caught.value.__cause__, OSError)
