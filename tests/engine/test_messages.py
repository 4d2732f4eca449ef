"""Messages survive the wire, and what is damaged or foreign is named and costs only itself."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import unittest.mock
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_platforms.engine import wire
from omni_platforms.engine.failure import ErrorRecord, WorkerTraceback
from omni_platforms.engine.messages import (
    AsyncOutput,
    Call,
    Drop,
    Ended,
    Execute,
    ExecuteBatch,
    Kind,
    Message,
    PreviewTaken,
    Setup,
    Started,
    Stop,
    Unreadable,
    member_id,
)
from omni_platforms.engine.payload import Blob, Pickled
from omni_platforms.engine.wire import decode, encode
from omni_platforms.errors import CorruptMessageError, RequestFailedError, UnsendableError

ERROR = ErrorRecord("builtins.ValueError", "no", "Traceback: no", Pickled.of(ValueError("no")))
EXAMPLES: list[Message] = [
    Setup("a.b:C", Pickled.of({"steps": 4}), 1, 2, 1, arena_cap=1 << 30, block_when_full=False),
    Execute("r1", Pickled.of([1, "two"]), stepwise=True, previews=2),
    ExecuteBatch("b", {"x": Pickled.of(1), "y/z": Pickled.of(2)}),
    Call("c", "load", Pickled.of((("x",), {"y": 1})), drain=0.5),
    Drop(("a", "b/1")),
    PreviewTaken("r1"),
    Unreadable("r1@3"),
    Stop(10.0),
    Started(None, "cpu", "cpu", 0, False, 1, 2),
    Started(ERROR),
    AsyncOutput(Kind.COMPUTE_DONE, "b", members=(member_id("b", "x"),), stamps={"begun": 1.5}),
    AsyncOutput(Kind.OUTPUT_READY, "b/x", packet=Blob(b"\x00\x01packet")),
    AsyncOutput(Kind.OUTPUT_COMING, "b/y", packet=Blob(b"\x00\x01packet")),
    AsyncOutput(Kind.PREVIEW, "r1", packet=Blob(b""), step=3),
    AsyncOutput(Kind.RPC_RESULT, "c", result=Pickled.of(None)),
    AsyncOutput(Kind.DROPPED, "\ud800 a name that is no text"),
    AsyncOutput(Kind.COMPUTE_DONE, "r2", error=ERROR, step=2, skipped_previews=1),
    Ended(ERROR),
]


def as_bytes(message: Message) -> bytearray:
    return bytearray(b"".join(encode(message)))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: type(m).__name__)
def test_every_message_survives(message: Message) -> None:
    assert decode(as_bytes(message)) == message


def test_there_is_an_example_of_every_kind() -> None:
    assert {message.kind for message in EXAMPLES} == set(Kind)


def test_the_objects_of_users_stay_opaque_on_the_way() -> None:
    request = Execute("r", Pickled(b"no pickle at all"))
    arrived = decode(as_bytes(request))
    assert isinstance(arrived, Execute)
    with pytest.raises(UnsendableError, match="cannot be rebuilt"):
        arrived.request.load()


@settings(max_examples=300, deadline=None)
@given(
    which=st.sampled_from(EXAMPLES), at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255)
)
def test_any_damaged_byte_is_seen_or_is_in_bytes_that_their_reader_checks(
    which: Message, at: float, flip: int
) -> None:
    data = as_bytes(which)
    data[int(at * len(data))] ^= flip
    arrived: Message | None = None
    with contextlib.suppress(CorruptMessageError):
        arrived = decode(data)
    if arrived is None:
        return
    assert type(arrived) is type(which)
    for field in dataclasses.fields(which):
        sent, got = getattr(which, field.name), getattr(arrived, field.name)
        assert sent == got or isinstance(sent, Blob | ErrorRecord | dict), field.name


@pytest.mark.parametrize("cut", [0, 3, 20, 33, -1])
def test_a_truncated_message_is_refused(cut: int) -> None:
    with pytest.raises(CorruptMessageError):
        decode(as_bytes(EXAMPLES[1])[:cut])


def test_damage_behind_the_start_still_says_whose_message_it_was() -> None:
    data = as_bytes(Execute("r7", Pickled(b"")))
    data[-1] ^= 1
    with pytest.raises(CorruptMessageError, match="damaged") as caught:
        decode(data)
    assert (caught.value.message_id, caught.value.kind) == ("r7", Kind.EXECUTE)


def test_another_release_and_another_protocol_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr(wire, "VERSION", 2)
        newer = as_bytes(Stop(1.0))
    with pytest.raises(CorruptMessageError, match="same release"):
        decode(newer)
    with pytest.raises(CorruptMessageError, match="no message: it begins with b'GET '"):
        decode(b"GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n")


def test_a_kind_that_is_not_known_and_a_field_that_is_missing() -> None:
    @dataclasses.dataclass(frozen=True)
    class Novelty:
        kind: int
        id: str

    newer = wire._Shape(Novelty, (), True, True)
    with unittest.mock.patch.dict(wire._SHAPES, {99: newer, Kind.CALL: newer}):
        unknown, short = as_bytes(Novelty(99, "n")), as_bytes(Novelty(Kind.CALL, "n"))  # type: ignore[arg-type]
    with pytest.raises(CorruptMessageError, match="kind 99") as caught:
        decode(unknown)
    assert caught.value.message_id == "n"
    with pytest.raises(CorruptMessageError, match="0 fields, where Call has 3"):
        decode(short)


class Planted:
    def __reduce__(self) -> Any:
        return print, ("unpickled",)


def test_nothing_but_records_is_made_from_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CorruptMessageError, match="has no place in a message"):
        decode(as_bytes(Drop((Planted(),))))  # type: ignore[arg-type]
    assert capsys.readouterr().out == ""


# Objects of users -------------------------------------------------------------


def test_a_view_does_not_drag_its_storage_along() -> None:
    batch = torch.arange(100_000.0)
    views = [batch[:10], batch[::1000], batch[0].expand(50), batch.view(100, 1000).t()[3]]
    pickled = Pickled.of({"views": views})
    assert pickled.nbytes < 5000
    for view, arrived in zip(views, pickled.load()["views"], strict=True):
        assert torch.equal(view, arrived)


def test_what_does_not_pickle_is_a_typed_error() -> None:
    with pytest.raises(UnsendableError, match="Send only objects that pickle accepts"):
        Pickled.of(lambda: 0)


class Awkward(Exception):
    """Pickles, and cannot be made from what it pickled."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{code} {why}")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _caught(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_an_exception_arrives_as_what_it_was_with_its_workers_traceback() -> None:
    arrived = ErrorRecord.of(_caught(ZeroDivisionError("by the worker"))).restore()
    assert type(arrived) is ZeroDivisionError
    assert arrived.args == ("by the worker",)
    assert isinstance(arrived.__cause__, WorkerTraceback)
    assert "in _caught" in str(arrived.__cause__)


@pytest.mark.parametrize(
    "error",
    [Awkward(1, why="awkward"), SystemExit(3), Unprintable(), ValueError(lambda: 0)],
    ids=lambda e: type(e).__name__,
)
def test_what_cannot_be_rebuilt_or_must_not_be_raised_arrives_as_text(error: BaseException) -> None:
    arrived = ErrorRecord.of(_caught(error)).restore()
    if isinstance(error, Unprintable):
        assert isinstance(arrived, Unprintable)
        return
    assert type(arrived) is RequestFailedError
    assert type(error).__qualname__ in str(arrived)
    assert "in _caught" in str(arrived.__cause__)


def test_an_exception_that_carries_data_arrives_without_it() -> None:
    record = ErrorRecord.of(ValueError("x" * 100, bytes(2 << 20)))
    assert record.pickled is None
    assert len(pickle.dumps(record)) < 300_000
