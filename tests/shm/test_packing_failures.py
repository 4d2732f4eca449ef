"""A packing or unpacking that fails leaves nothing behind, and the payload as it was."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import (
    ArenaClosedError,
    ArenaFullError,
    OmniError,
    OutputError,
    UnsupportedOutputError,
)
from omni_platforms.shm import lease as lease_module
from omni_platforms.shm.writing import Writer
from tests.outputs.test_nest import bits
from tests.shm.test_packing import LARGE, Pair, idle, through


@pytest.mark.parametrize("at", range(4))
def test_a_packing_that_fails_half_way_returns_every_block(pair: Pair, at: int) -> None:
    arena, _ = pair
    payload = {"leaves": [torch.full((LARGE,), float(i)) for i in range(4)], "meta": {"a": 1}}
    write, calls = Writer.write, []

    def fail_at(self: Writer, *args: Any) -> None:
        calls.append(args)
        if len(calls) == at + 1:
            raise RuntimeError("planted")
        write(self, *args)

    with mock.patch.object(Writer, "write", fail_at), pytest.raises(RuntimeError, match="planted"):
        arena.pack(payload)
    assert idle(arena)
    assert [leaf[0].item() for leaf in payload["leaves"]] == [0, 1, 2, 3]
    assert payload["meta"] == {"a": 1}
    assert through(pair, payload)["leaves"][3].eq(3).all()


def test_one_block_too_many_returns_those_before_it(pair: Pair) -> None:
    arena, _ = pair
    with pytest.raises(ArenaFullError, match=r"cap of 16777216 bytes \(as it was asked for\)"):
        arena.pack([torch.ones(1 << 20) for _ in range(5)])
    assert idle(arena)


@pytest.mark.parametrize("bad", [lambda: 1, (i for i in ()), torch.empty(2, device="meta")])
def test_what_cannot_be_sent_is_refused_before_any_block_is_taken(pair: Pair, bad: Any) -> None:
    arena, _ = pair
    with pytest.raises(UnsupportedOutputError):
        arena.pack([torch.ones(LARGE), bad])
    assert idle(arena)


def test_a_nest_that_is_too_deep_is_refused(pair: Pair) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnsupportedOutputError, match="nested deeper"):
        pair[0].pack(deep)
    while deep:  # Python's own end of it would be as deep
        deep = deep.pop()


class OnlyHere:
    """Cannot be made again where it arrives."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise LookupError("not here")


def test_an_object_that_cannot_be_made_there_loses_only_its_output(pair: Pair) -> None:
    arena, view = pair
    packet = arena.pack([torch.ones(LARGE), OnlyHere()])
    with pytest.raises(UnsupportedOutputError, match="cannot be rebuilt") as caught:
        view.unpack(packet)
    assert isinstance(caught.value.__cause__, LookupError)
    assert idle(arena), "also while the exception is alive"
    assert through(pair, torch.ones(2)).tolist() == [1.0, 1.0]


def test_dropping_gives_the_blocks_back(pair: Pair) -> None:
    arena, _ = pair
    packing = arena.start(torch.ones(LARGE))
    assert arena.stats().in_flight == 1
    packing.drop()
    packing.drop()
    assert idle(arena)
    with pytest.raises(OutputError, match="dropped"):
        packing.wait()


def test_letting_go_gives_the_blocks_back(pair: Pair) -> None:
    arena, _ = pair
    packing = arena.start(torch.ones(LARGE))
    del packing
    assert idle(arena)


def test_a_drop_after_the_packet_changes_nothing(pair: Pair) -> None:
    arena, view = pair
    packing = arena.start(torch.ones(LARGE))
    packet = packing.wait()
    packing.drop()
    assert packing.wait() is packet
    del packing
    assert arena.stats().lent == 1
    assert view.unpack(packet).sum() == LARGE


def test_discarding_on_either_side(pair: Pair) -> None:
    arena, view = pair
    packet = arena.pack([torch.ones(LARGE), torch.ones(LARGE)])
    arena.discard(packet)
    arena.discard(packet)
    assert idle(arena)
    view.discard(arena.pack([torch.ones(LARGE), torch.ones(LARGE)]))
    assert idle(arena)


def test_use_after_close_is_typed(pair: Pair) -> None:
    arena, view = pair
    packet = arena.pack(torch.ones(LARGE))
    view.close()
    view.close()
    arena.close()
    arena.close()
    with pytest.raises(ArenaClosedError, match="arena is closed"):
        arena.pack(1)
    with pytest.raises(ArenaClosedError, match="view"):
        view.unpack(packet)
    assert issubclass(ArenaClosedError, OmniError)
    assert lease_module.open_leases() == 0


def test_bits_of_a_dtype_that_numpy_does_not_have(pair: Pair) -> None:
    image = torch.randn(LARGE).to(torch.float8_e4m3fn)
    assert bits(through(pair, image)) == bits(image)
