"""The blocks of a packet that got lost on its way come back, unless somebody may have a view."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from omni_platforms import (
    CorruptMessageError,
    CorruptPacketError,
    MultiprocExecutor,
    UnsupportedOutputError,
)
from omni_platforms.engine.messages import AsyncOutput, Drop, Kind, Unreadable, preview_id
from omni_platforms.engine.payload import Blob
from omni_platforms.engine.replies import Replies
from tests.engine.driver import Driver
from tests.engine.fakes import PATIENCE, FakeWorker, Pair, dropping, until
from tests.engine.test_damage import damaged
from tests.engine.worker.conftest import shared, worker

__all__ = ["shared", "worker"]

MB = 1 << 20
LARGE = 1_500_000  # elements: two such outputs leave the arena, of 16 MiB, no room for a third

# The parent says what was lost ------------------------------------------------------------------


def begun(pair: Pair) -> tuple[MultiprocExecutor, FakeWorker, str]:
    """Return a pair, and a request that is computed."""
    executor, worker = pair
    name = executor.submit("request").async_output_id
    worker.begin()
    worker.computed(name)
    return executor, worker, name


@pytest.mark.parametrize("kind", [Kind.OUTPUT_READY, Kind.OUTPUT_COMING])
def test_a_message_that_cannot_be_read(pair: Pair, kind: Kind) -> None:
    executor, worker, name = begun(pair)
    worker.say_bytes(damaged(AsyncOutput(kind, name, packet=Blob(b"..."))))
    assert worker.hear(Unreadable).id == name
    assert isinstance(executor.wait_output_ready(name).exception(PATIENCE), CorruptMessageError)


@pytest.mark.parametrize("kind", [Kind.OUTPUT_READY, Kind.OUTPUT_COMING])
def test_a_packet_that_cannot_be_read(pair: Pair, kind: Kind) -> None:
    executor, worker, name = begun(pair)
    worker.say(kind, name, packet=Blob(b"damaged"))
    assert worker.hear(Unreadable).id == name
    if kind is Kind.OUTPUT_COMING:
        worker.say(Kind.OUTPUT_READY, name)
    assert isinstance(executor.wait_output_ready(name).exception(PATIENCE), CorruptPacketError)
    assert worker.hears_nothing(), "it is said once"


def test_a_packet_that_nobody_wants_and_nobody_can_read(pair: Pair) -> None:
    executor, worker, name = begun(pair)
    drop = dropping(executor, name)
    worker.hear(Drop)
    worker.view.discard = worker.view.unpack  # type: ignore[method-assign]
    worker.say(Kind.OUTPUT_READY, name, packet=Blob(b"damaged"))
    assert worker.hear(Unreadable).id == name
    worker.say(Kind.DROPPED, name)
    assert drop.result(PATIENCE)


def test_a_preview_is_lost_by_itself(pair: Pair) -> None:
    """Others of the same request may be in somebody's hands."""
    executor, worker = pair
    future = executor.submit("request", stepwise=True, previews=3)
    name = worker.begin()
    worker.say(Kind.PREVIEW, preview_id(name, 1), step=1, packet=Blob(pickle.dumps("a view")))
    worker.say(Kind.PREVIEW, preview_id(name, 2), step=2, packet=Blob(b"damaged"))
    assert worker.hear(Unreadable).id == f"{name}@2"
    assert future.previews is not None
    assert next(future.previews).value == "a view"


def _stashed(packet: Any) -> Any:
    raise UnsupportedOutputError("one object was made, and keeps its view; another cannot be made")


def test_what_was_unpacked_in_part_is_not_lost(pair: Pair) -> None:
    """Its leases end with the last view, as always; somebody may have kept one."""
    executor, worker, name = begun(pair)
    worker.view.unpack = _stashed  # type: ignore[method-assign]
    worker.output(name, "out")
    error = executor.wait_output_ready(name).exception(PATIENCE)
    assert isinstance(error, UnsupportedOutputError)
    assert worker.hears_nothing()


class Big:
    """Stands for views of shared memory."""


def test_an_announced_output_whose_end_is_damaged_is_let_go(pair: Pair) -> None:
    executor, worker, name = begun(pair)
    views: list[weakref.ref[Big]] = []

    def unpack(packet: Any) -> Big:
        big = Big()
        views.append(weakref.ref(big))
        return big

    worker.view.unpack = unpack  # type: ignore[method-assign]
    worker.say(Kind.OUTPUT_COMING, name, packet=Blob(b"..."))
    worker.say_bytes(damaged(AsyncOutput(Kind.OUTPUT_READY, name)))
    assert isinstance(executor.wait_output_ready(name).exception(PATIENCE), CorruptMessageError)
    until(lambda: views[0]() is None)
    assert worker.hears_nothing(), "its leases have ended by themselves"


def test_what_comes_again_damaged_takes_nothing_from_whoever_has_it(pair: Pair) -> None:
    executor, worker, name = begun(pair)
    worker.output(name, "out")
    assert executor.wait_output_ready(name).result(PATIENCE) == "out"
    worker.view.discard = worker.view.unpack  # type: ignore[method-assign]
    worker.say(Kind.OUTPUT_READY, name, packet=Blob(b"damaged"))
    worker.say_bytes(damaged(AsyncOutput(Kind.OUTPUT_READY, name, packet=Blob(b"..."))))
    until(lambda: executor.describe_pending_state().late == 2)
    assert worker.hears_nothing()


# The worker takes it back -----------------------------------------------------------------------


def test_a_worker_takes_back_what_was_lost_and_nothing_else(worker: Driver) -> None:
    held = worker.run(("fill", (1, LARGE)))
    lost = worker.send_request(("fill", (2, LARGE)))
    worker.hear(Kind.COMPUTE_DONE, lost)
    worker.hear(Kind.OUTPUT_READY, lost)
    late = worker.send_request(("fill", (3, LARGE)))
    worker.hear(Kind.COMPUTE_DONE, late)
    worker.await_phase(late, "room")
    worker.process.channel.send(Unreadable("never heard of"))
    worker.await_phase(late, "room")
    worker.process.channel.send(Unreadable(lost))
    assert worker.output(late).eq(3).all()
    assert held.eq(1).all()


# Both -------------------------------------------------------------------------------------------


def one_worker() -> MultiprocExecutor:
    return MultiprocExecutor(
        "tests.engine.workers:Worker", 1, "cpu", arena_cap=4 * MB, arena_segment_bytes=MB,
        arena_initial_bytes=MB, when_full="raise", output_timeout=PATIENCE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def real() -> Iterator[MultiprocExecutor]:
    with one_worker() as executor:
        yield executor


def packet_damaged(message: AsyncOutput) -> AsyncOutput:
    assert message.packet is not None
    data = bytearray(message.packet.data)
    data[20] ^= 1
    return replace(message, packet=Blob(bytes(data)))


def message_damaged(message: AsyncOutput) -> AsyncOutput:
    error = CorruptMessageError("damaged")
    error.message_id, error.kind = message.id, message.kind
    raise error


@contextmanager
def losing(
    executor: MultiprocExecutor, how: Callable[[AsyncOutput], AsyncOutput]
) -> Iterator[None]:
    """Damage all that comes with a packet, on its way."""
    (process,) = executor._engine.crew.workers.values()
    receive, bad = process.channel.receive, True

    def damaging(timeout: float | None = None) -> Any:
        message = receive(timeout)
        has_packet = isinstance(message, AsyncOutput) and message.packet is not None
        return how(message) if bad and has_packet else message

    # The pump is in the old one: one message is to come before it calls the new one.
    process.channel.receive = damaging  # type: ignore[method-assign]
    executor.collective_rpc("alive", timeout=PATIENCE)
    yield
    bad = False


def _all_lost(executor: MultiprocExecutor, how: Callable[[AsyncOutput], AsyncOutput]) -> None:
    """30 outputs of 1 MB and 10 previews are lost, where 4 MB are allowed."""
    with losing(executor, how):
        for number in range(30):
            done = executor.execute_model(("fill", (number, MB // 4)))
            error = executor.wait_output_ready(done.async_output_id).exception(PATIENCE)
            assert isinstance(error, CorruptPacketError | CorruptMessageError), error
        done = executor.execute_stepwise({"steps": 10}, lambda preview: None)
        assert executor.wait_output_ready(done.async_output_id).exception(PATIENCE)


@pytest.mark.parametrize("how", [packet_damaged, message_damaged])
def test_a_channel_that_damages_everything_fills_no_memory(
    real: MultiprocExecutor, how: Callable[[AsyncOutput], AsyncOutput]
) -> None:
    done = real.execute_model(("fill", (7, MB // 4)))
    kept = real.wait_output_ready(done.async_output_id).result(PATIENCE)
    _all_lost(real, how)
    assert kept.eq(7).all()
    assert real.check_health()
    del kept
    gc.collect()
    until(lambda: real.collective_rpc("lent_blocks", timeout=PATIENCE) == [0])


def test_planted_nobody_says_what_was_lost() -> None:
    with (
        one_worker() as executor,
        mock.patch.object(Replies, "unreadable"),
        pytest.raises(AssertionError, match="no room for a block"),
    ):
        _all_lost(executor, packet_damaged)
