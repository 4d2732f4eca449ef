"""Requests, and the replies of workers that are fakes: windows, batches, order."""

from __future__ import annotations

import time

import pytest

from omni_platforms import (
    UnknownOutputError,
    UnsendableError,
)
from omni_platforms.engine.messages import Kind
from tests.engine.fakes import Pair

# The way of a request -------------------------------------------------------------------------


def test_compute_done_and_output(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("request")
    name = worker.begin()
    assert name == future.async_output_id
    worker.computed(name)
    done = future.result()
    assert (done.kind, done.async_output_id) == (Kind.COMPUTE_DONE, name)
    waiting = executor.wait_output_ready(name)
    assert executor.wait_output_ready(name) is waiting, "one output, one future"
    worker.output(name, "the output")
    assert waiting.result() == "the output"
    with pytest.raises(UnknownOutputError, match="delivered before"):
        executor.wait_output_ready(name)
    with pytest.raises(UnknownOutputError, match="never issued"):
        executor.wait_output_ready("r17")


def test_the_next_request_is_at_the_worker_before_the_first_is_done(pair: Pair) -> None:
    executor, worker = pair
    futures = [executor.submit(n) for n in range(3)]
    first, second = worker.begin(), worker.begin()
    assert worker.hears_nothing()
    worker.computed(first)
    third = worker.begin()
    assert [first, second, third] == [future.async_output_id for future in futures]


def test_a_request_that_fails_raises_its_error_and_nothing_else_is_kept(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit("bad")
    worker.computed(worker.begin(), ValueError("no such size"))
    with pytest.raises(ValueError, match="no such size") as caught:
        future.result()
    assert "ValueError: no such size" in str(caught.value.__cause__)
    assert not executor.describe_pending_state().outputs
    with pytest.raises(ValueError, match="no such size"):
        executor.wait_output_ready(future.async_output_id).result()


def test_a_request_that_does_not_pickle_is_refused_at_once(pair: Pair) -> None:
    executor, worker = pair
    with pytest.raises(UnsendableError):
        executor.submit(lambda: None)
    with pytest.raises(TypeError, match="text"):
        executor.submit_batch({1: "one"})  # type: ignore[dict-item]
    assert worker.hears_nothing()


def test_the_outputs_of_a_batch_arrive_each_by_itself(pair: Pair) -> None:
    executor, worker = pair
    future = executor.submit_batch({"x": 1, "y": 2, "z": 3})
    batch = worker.begin_batch()
    worker.output(f"{batch.id}/y", "y, early")
    worker.computed(batch.id)
    handles = future.result()
    assert list(handles) == ["x", "y", "z"]
    assert executor.wait_output_ready(handles["y"].async_output_id).result() == "y, early"
    worker.output(f"{batch.id}/z", error=OSError("disk"))
    worker.output(f"{batch.id}/x", "x")
    assert executor.wait_output_ready(handles["x"].async_output_id).result() == "x"
    with pytest.raises(OSError, match="disk"):
        executor.wait_output_ready(handles["z"].async_output_id).result()
    assert not executor.describe_pending_state().outputs


def test_a_worker_that_does_not_read_holds_up_neither_callers_nor_outputs(pair: Pair) -> None:
    executor, worker = pair
    first = executor.submit("small")
    name = worker.begin()
    started = time.monotonic()
    executor.submit(b"x" * (8 << 20))  # far more than the socket holds; nobody reads it
    executor.submit(b"x" * (8 << 20))
    assert time.monotonic() - started < 2
    worker.computed(name)
    worker.output(name, "out")
    assert first.result().id == name
    assert executor.wait_output_ready(name).result() == "out"
