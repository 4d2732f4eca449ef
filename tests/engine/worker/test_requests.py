"""What a running worker does with requests, batches, steps and calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from omni_platforms.engine.failure import WorkerTraceback
from omni_platforms.engine.messages import Execute, Kind, member_id, request_of
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.wire import encode
from omni_platforms.errors import (
    CorruptMessageError,
    RequestFailedError,
    UnknownMethodError,
    UnsendableError,
    UnsupportedOutputError,
    WorkerAsleepError,
)
from tests.engine.driver import Driver

pytestmark = pytest.mark.xdist_group("engine_worker")


# Requests ---------------------------------------------------------------------


def test_a_request_and_its_output(worker: Driver) -> None:
    name = worker.send_request({"prompt": "a cat", "image": torch.arange(5)})
    assert worker.hear(Kind.COMPUTE_DONE, name).error is None
    ready = worker.hear(Kind.OUTPUT_READY, name)
    assert ready.async_output_id == name
    got = worker.unpack(ready)
    assert got["prompt"] == "a cat"
    assert torch.equal(got["image"], torch.arange(5))
    phases = ["queue", "compute", "room", "gate", "copy", "send"]
    assert [ready.stamps[phase] for phase in phases] == sorted(ready.stamps.values())


def test_requests_are_answered_in_order_each_with_its_own(worker: Driver) -> None:
    names = [worker.send_request(("fill", (i, 5000 + i))) for i in range(30)]
    for i, name in enumerate(names):
        output = worker.output(name)
        assert output.shape == (5000 + i,)
        assert output.eq(i).all()
    done = [message.id for message in worker.seen if message.kind is Kind.COMPUTE_DONE]
    assert done == names
    worker.throw_away()


def test_the_worker_is_what_its_setup_says(worker: Driver) -> None:
    facts = worker.call("facts")
    assert facts["config"] == {"model": "tiny"}
    assert (facts["platform"], facts["device"]) == ("cpu", "cpu")
    assert facts["pid"] == worker.process.pid
    assert worker.started.platform == "cpu"
    assert worker.started.arena_cap == 16 << 20


def test_an_exception_fails_its_request_alone(worker: Driver) -> None:
    name = worker.send_request(("fail", "money"))
    after = worker.send_request("next")
    failed = worker.hear(Kind.COMPUTE_DONE, name)
    assert failed.error is not None
    error = failed.error.restore()
    assert (type(error), str(error)) == (ValueError, "no money")
    assert isinstance(error.__cause__, WorkerTraceback)
    assert "in do_fail" in str(error.__cause__)
    assert worker.hear(Kind.COMPUTE_DONE, after).error is None
    assert worker.output(after) == "next"


def test_an_exit_in_a_request_is_that_requests_failure(worker: Driver) -> None:
    with pytest.raises(RequestFailedError, match=r"SystemExit: 3"):
        worker.run(("exit", 3))
    assert worker.run("still there") == "still there"


def test_an_output_that_cannot_be_sent_fails_alone(worker: Driver) -> None:
    name = worker.send_request(("unsendable", 1))
    assert worker.hear(Kind.COMPUTE_DONE, name).error is None, "the forward went well"
    with pytest.raises(UnsupportedOutputError, match="cannot be sent"):
        worker.output(name)
    assert worker.run(1) == 1


def test_a_request_that_cannot_be_rebuilt_fails_alone(worker: Driver) -> None:
    worker.process.channel.send(Execute("odd", Pickled(b"\x80\x05cno_such_module\nThing\n.")))
    error = worker.hear(Kind.COMPUTE_DONE, "odd").error
    assert error is not None
    assert isinstance(error.restore(), UnsendableError)
    assert worker.run(1) == 1


@pytest.mark.parametrize("kind", ["Execute", "Call"])
def test_a_damaged_message_costs_one_request_or_call(worker: Driver, kind: str) -> None:
    if kind == "Execute":
        message: Any = Execute("hurt", Pickled(b""))
    else:
        from omni_platforms.engine.messages import Call

        message = Call("hurt", "load", Pickled(b""))
    data = bytearray(b"".join(bytes(piece) for piece in encode(message)))
    data[-1] ^= 1
    channel = worker.process.channel
    with channel._door, channel._writing:
        channel._write(next(channel._numbers), 1, data)
    answer = Kind.COMPUTE_DONE if kind == "Execute" else Kind.RPC_RESULT
    error = worker.hear(answer, "hurt").error
    assert error is not None
    assert isinstance(error.restore(), CorruptMessageError)
    assert worker.run(1) == 1


# Batches ----------------------------------------------------------------------


def test_a_batch_is_split_into_its_members(worker: Driver) -> None:
    batch = worker.send_batch({"a": 1, "bb": 2, "c/c": 3})
    members = worker.hear(Kind.COMPUTE_DONE, batch).members
    assert members == (f"{batch}/a", f"{batch}/bb", f"{batch}/c/c")
    for member, value in zip(members, (1, 2, 3), strict=True):
        output = worker.output(member)
        assert output.eq(value).all()
        assert output.untyped_storage().nbytes() == output.nbytes, "its own bytes only"


def test_a_member_that_fails_costs_no_other(worker: Driver) -> None:
    requests = {"a": 1, "bb": "bad", "ccc": "forget", "dddd": Pickled(b"no pickle"), "eeeee": 5}
    batch = worker.send_batch(requests)
    done = worker.hear(Kind.COMPUTE_DONE, batch)
    assert done.error is None
    assert set(done.members) == {member_id(batch, name) for name in requests}
    for name, error in (("bb", ValueError), ("ccc", KeyError), ("dddd", UnsendableError)):
        with pytest.raises(error):
            worker.output(member_id(batch, name))
    assert worker.output(f"{batch}/a").eq(1).all()
    assert worker.output(f"{batch}/eeeee").eq(5).all()


def test_a_forward_that_fails_costs_the_batch_and_no_more(worker: Driver) -> None:
    batch = worker.send_batch({"a": 1, "b": "explode"})
    done = worker.hear(Kind.COMPUTE_DONE, batch)
    assert done.error is not None
    assert isinstance(done.error.restore(), ArithmeticError)
    assert worker.run(1) == 1


# Steps ------------------------------------------------------------------------


def previews(worker: Driver, name: str) -> list[int]:
    """Take the previews that have come; return after which steps, having checked each."""
    steps = []
    for message in [m for m in worker.seen if (m.kind, request_of(m.id)) == (Kind.PREVIEW, name)]:
        worker.seen.remove(message)
        assert message.step is not None
        assert worker.unpack(message).eq(message.step).all(), "as it was after its step"
        steps.append(message.step)
    return steps


def test_steps_with_previews_for_a_consumer_that_takes_all(worker: Driver) -> None:
    name = worker.send_request({"steps": 5}, stepwise=True, previews=5)
    done = worker.hear(Kind.COMPUTE_DONE, name)
    assert (done.step, done.skipped_previews) == (5, 0)
    assert worker.output(name).eq(50).all()
    assert previews(worker, name) == [1, 2, 3, 4, 5]


def test_previews_are_skipped_when_the_consumer_is_slow(worker: Driver, tmp_path: Path) -> None:
    between = f"{tmp_path}/step"
    request = {"steps": 4, "between": between}
    name = worker.send_request(request, stepwise=True, previews=1)
    worker.hear_if(lambda message: message.kind is Kind.PREVIEW and message.step == 1)
    Path(f"{between}1").touch()
    Path(f"{between}2").touch()  # the second has no room: nobody took the first
    worker.take_preview(name)
    worker.call("omni.describe")  # the reader has seen that
    for step in (3, 4):
        Path(f"{between}{step}").touch()
    done = worker.hear(Kind.COMPUTE_DONE, name)
    assert (done.step, done.skipped_previews) in ((4, 2), (4, 3))
    assert worker.output(name).eq(40).all()
    assert len(previews(worker, name)) == 3 - done.skipped_previews


def test_no_previews_unless_they_are_asked_for(worker: Driver) -> None:
    name = worker.send_request({"steps": 3}, stepwise=True)
    done = worker.hear(Kind.COMPUTE_DONE, name)
    assert (done.step, done.skipped_previews) == (3, 3)
    assert worker.output(name).eq(30).all()


def test_a_request_that_nobody_wants_ends_between_two_steps(worker: Driver, tmp_path: Path) -> None:
    between = f"{tmp_path}/step"
    request = {"steps": 1000, "between": between}
    name = worker.send_request(request, stepwise=True, previews=1)
    worker.hear_if(lambda message: message.kind is Kind.PREVIEW)
    worker.drop(name)
    worker.call("omni.describe")
    Path(f"{between}1").touch()
    assert worker.hear(Kind.COMPUTE_DONE, name).step == 2, "the one that it was in is the last"
    worker.hear(Kind.DROPPED, name)


def test_a_step_that_fails_fails_its_request(worker: Driver) -> None:
    name = worker.send_request({"steps": 5, "fail_at": 3}, stepwise=True)
    error = worker.hear(Kind.COMPUTE_DONE, name).error
    assert error is not None
    assert str(error.restore()) == "step 3"
    assert worker.run("whole", stepwise=True) == "whole", "a method that makes no steps"


# Calls ------------------------------------------------------------------------


def test_calls_get_exactly_their_own_reply(worker: Driver) -> None:
    calls = [worker.send_call("load", i, key=i) for i in range(20)]
    request = worker.send_request("between")
    for i, name in reversed(list(enumerate(calls))):
        answer = worker.hear(Kind.RPC_RESULT, name)
        assert answer.result is not None
        got = answer.result.load()
        assert (got["args"], got["kwargs"]) == ((i,), {"key": i})
    worker.hear(Kind.COMPUTE_DONE, request)
    assert worker.output(request) == "between"


@pytest.mark.parametrize("method", ["_private", "__init__", "nothing", "rank"])
def test_only_public_methods_can_be_called(worker: Driver, method: str) -> None:
    with pytest.raises(UnknownMethodError, match="no public method"):
        worker.call(method)


def test_a_call_that_fails_is_its_own_failure(worker: Driver) -> None:
    with pytest.raises(KeyError, match="refused"):
        worker.call("refuse")
    with pytest.raises(TypeError):
        worker.call("sleep", 1, 2, 3)
    with pytest.raises(UnsendableError):
        worker.call("unsendable_result")
    assert worker.run("awake") == "awake"


def test_a_sleeping_worker_refuses_requests_and_wakes(worker: Driver) -> None:
    assert worker.call("sleep", 2) == 2
    for name in (worker.send_request(1), worker.send_batch({"a": 1})):
        error = worker.hear(Kind.COMPUTE_DONE, name).error
        assert error is not None
        assert isinstance(error.restore(), WorkerAsleepError)
    assert worker.call("load")["rank"] == 0
    assert worker.call("wake_up") == "awake"
    assert worker.run(1) == 1
