"""An error keeps the frames that it went through no longer than whoever has caught it."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from omni_platforms import MultiprocExecutor
from omni_platforms.engine.ledger_records import again
from omni_platforms.engine.messages import Call, Execute, ExecuteBatch, Kind
from omni_platforms.errors import RequestFailedError
from tests.engine.fakes import Pair, record, until

Way = Callable[[MultiprocExecutor], Any]


def wait_for_output(executor: MultiprocExecutor) -> Any:
    return executor.wait_output_ready(executor.submit("bad").async_output_id).result()


WAYS: dict[str, Way] = {
    "execute_model": lambda executor: executor.execute_model("bad"),
    "execute_model_batch": lambda executor: executor.execute_model_batch({"x": "bad"}),
    "execute_stepwise": lambda executor: executor.execute_stepwise("bad"),
    "output": wait_for_output,
    "collective_rpc": lambda executor: executor.collective_rpc("method"),
}


class Local:
    """Stands for a large tensor in a frame of the caller."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fail_everything(worker: Any) -> None:
    def work() -> None:
        message = worker.theirs.receive()
        kind = Kind.RPC_RESULT if isinstance(message, Call) else Kind.COMPUTE_DONE
        assert isinstance(message, Call | Execute | ExecuteBatch)
        worker.say(kind, message.id, error=record(ValueError("bad")))

    threading.Thread(target=work, daemon=True).start()


def local_after(executor: MultiprocExecutor, way: Way) -> Any:
    """Let a frame see an error, and return what is left of a local variable of it."""
    local = Local()
    with suppress(ValueError):
        way(executor)
    return weakref.ref(local)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("name", WAYS)
def test_a_callers_frame_is_let_go_without_the_collector(pair: Pair, name: str) -> None:
    executor, worker = pair
    fail_everything(worker)
    local = local_after(executor, WAYS[name])
    until(lambda: local() is None)  # the pump may hold its message for a moment


@pytest.mark.usefixtures("no_collector")
def test_a_coroutines_frame_is_let_go_without_the_collector(pair: Pair) -> None:
    executor, worker = pair
    fail_everything(worker)

    async def caller() -> Any:
        local = Local()
        with suppress(ValueError):
            await executor.generate("bad")
        return weakref.ref(local)

    local = asyncio.run(caller())
    until(lambda: local() is None)


@pytest.mark.usefixtures("no_collector")
def test_planted_one_error_for_all_who_get_it(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omni_platforms.engine.ledger.again", lambda error: error)
    executor, worker = pair
    fail_everything(worker)
    local = local_after(executor, WAYS["execute_model"])
    executor.shutdown(0.0)  # no thread of ours holds anything now
    assert local() is not None


class NeedsTwo(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_a_copy_of_an_error_is_the_error() -> None:
    error = ValueError("text", 3)
    error.__cause__ = KeyError("cause")
    copy = again(error)
    assert (type(copy), copy.args, copy.__cause__) == (ValueError, ("text", 3), error.__cause__)
    assert isinstance(again(NeedsTwo(1, 2)), RequestFailedError)
    assert "NeedsTwo: 1 and 2" in str(again(NeedsTwo(1, 2)))
