"""Damaged packets: a typed error, and nothing else is lost."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from omni_platforms.errors import CorruptPacketError
from omni_platforms.shm import Arena, ArenaView, mapped, packet
from omni_platforms.shm import lease as lease_module
from omni_platforms.shm.packet import INLINE, BlockRecord, Contents, LeafRecord, decode, encode

Pair = tuple[Arena, ArenaView]
N = 9000


def packed(arena: Arena) -> bytes:
    return arena.pack({"large": torch.ones(N), "small": torch.ones(3), "array": np.ones(4)}).data


def test_what_is_encoded_is_decoded(pair: Pair) -> None:
    data = packed(pair[0])
    again = decode(memoryview(bytearray(data)))
    assert encode(again._replace(inline=bytes(again.inline))) == data


def test_every_truncation_is_seen(pair: Pair) -> None:
    arena, view = pair
    data = packed(arena)
    for length in range(len(data)):
        with pytest.raises(CorruptPacketError):
            view.unpack(data[:length])
    with pytest.raises(CorruptPacketError):
        view.unpack(data + b"x")
    assert view.unpack(data)["large"].sum() == N


def test_every_flipped_bit_before_the_inline_bytes_is_seen(pair: Pair) -> None:
    arena, view = pair
    data = packed(arena)
    checked = len(data) - len(decode(data).inline)
    for at in range(checked):
        wrong = bytearray(data)
        wrong[at] ^= 1 << random.Random(at).randrange(8)
        with pytest.raises(CorruptPacketError):
            view.unpack(wrong)
    assert lease_module.open_leases() == 0
    assert view.unpack(data)["small"].tolist() == [1.0] * 3


def test_without_the_checksum_flipped_bits_would_pass(pair: Pair) -> None:
    data = packed(pair[0])
    checked = len(data) - len(decode(data).inline)
    passed = 0
    with mock.patch.object(packet.zlib, "crc32", return_value=struct.unpack_from("<I", data, 8)[0]):
        for at in range(12, checked):
            wrong = bytearray(data)
            wrong[at] ^= 4
            try:
                decode(wrong)
            except CorruptPacketError:
                continue
            passed += 1
    assert passed


def test_another_version_says_so(pair: Pair) -> None:
    data = bytearray(packed(pair[0]))
    data[4] = 99
    with pytest.raises(CorruptPacketError, match=r"version 99.*reads version 1"):
        pair[1].unpack(data)


@pytest.mark.parametrize("first", ["unpack", "discard"])
def test_a_packet_is_unpacked_once(pair: Pair, first: str) -> None:
    arena, view = pair
    data = packed(arena)
    getattr(view, first)(data)
    for again in (view.unpack, view.discard):
        with pytest.raises(CorruptPacketError, match="once"):
            again(data)
    kept = view.unpack(packed(arena))["large"]
    assert kept.sum() == N
    assert arena.stats().lent == 1


@pytest.mark.parametrize("data", [b"", b"x", b"OmSh", bytes(200), b"GET / HTTP/1.1" * 20])
def test_anything_else_is_refused(pair: Pair, data: bytes) -> None:
    with pytest.raises(CorruptPacketError):
        pair[1].unpack(data)


def wrong_leaf(**changes: Any) -> Callable[[Contents], None]:
    def change(contents: Contents) -> None:
        for name, value in changes.items():
            setattr(contents.leaves[0], name, value)

    return change


def wrong_block(**changes: Any) -> Callable[[Contents], None]:
    def change(contents: Contents) -> None:
        assert isinstance(contents.blocks, list)
        contents.blocks[0] = contents.blocks[0]._replace(**changes)

    return change


WRONG = {
    "a leaf past its block": wrong_leaf(offset=4),
    "a leaf far outside": wrong_leaf(offset=1 << 62),
    "a leaf in no block": wrong_leaf(block=7),
    "a leaf in a negative block": wrong_leaf(block=-2),
    "a large leaf inline": wrong_leaf(block=INLINE),
    "strides that leave the leaf": wrong_leaf(strides=(2,)),
    "negative strides": wrong_leaf(strides=(-1,)),
    "a negative size": wrong_leaf(shape=(-N,), nbytes=0),
    "a size that does not fit": wrong_leaf(shape=(N + 1,)),
    "an enormous size": wrong_leaf(shape=(1 << 62,), nbytes=1 << 63),
    "another kind": wrong_leaf(kind=b"z"),
    "no such dtype": wrong_leaf(dtype="float33"),
    "something that is no dtype": wrong_leaf(dtype="nn"),
    "another size of the dtype": wrong_leaf(dtype="float64"),
    "an array of objects": wrong_leaf(kind=b"a", dtype="O"),
    "an array of nothing": wrong_leaf(kind=b"a", dtype="?!"),
    "no such segment": wrong_block(segment=3),
    "past the segment": wrong_block(offset=1 << 20),
    "over the segment's end": wrong_block(nbytes=(1 << 20) + 1),
    "between pages": wrong_block(offset=8),
    "no bytes": wrong_block(nbytes=0),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_packet_that_makes_no_sense_is_refused(
    pair: Pair, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the right checksum: as a fault of the sender, not of the channel."""
    monkeypatch.setattr(mapped, "_ANNOUNCED_TIMEOUT_S", 0.01)  # for a segment that never comes
    arena, view = pair
    sent = arena.pack(torch.ones(N))
    contents = decode(sent.data)
    WRONG[what](contents)
    with pytest.raises(CorruptPacketError):
        view.unpack(encode(contents))
    assert lease_module.open_leases() == 0
    arena.discard(sent)
    assert arena.stats().lent == 0
    large = (2 << 20) // 4
    assert view.unpack(arena.pack(torch.ones(large))).sum() == large, "in a segment of its own"


def test_an_error_says_whether_the_worker_still_has_the_blocks(pair: Pair) -> None:
    """A packet that is read a second time may be one whose first reading somebody has a view of."""
    arena, view = pair
    packet = arena.pack(torch.ones(N))
    flipped = bytearray(packet.data)
    flipped[20] ^= 1
    with pytest.raises(CorruptPacketError) as damaged:
        view.unpack(flipped)
    assert damaged.value.untouched
    kept = view.unpack(packet)
    with pytest.raises(CorruptPacketError, match="began before") as again:
        view.unpack(packet)
    assert not again.value.untouched
    assert kept.sum() == N
    contents = decode(arena.pack(torch.ones(N)).data)
    wrong_leaf(dtype="float33")(contents)
    with pytest.raises(CorruptPacketError, match="no dtype") as half_way:
        view.unpack(encode(contents))
    assert not half_way.value.untouched, "its leases have begun"
    del half_way  # and end with the frames of the error
    assert arena.stats().lent == 1


def test_blocks_are_taken_back_by_the_name_of_their_output(pair: Pair) -> None:
    arena, view = pair
    kept = view.unpack(arena.start([torch.ones(N)] * 2, name="a").wait())
    lost = arena.start([torch.ones(N), torch.zeros(N)], name="b").wait()
    arena.discard_all_of("b")
    arena.discard_all_of("never was")
    assert arena.stats().lent == 1
    with pytest.raises(CorruptPacketError):
        view.unpack(lost.data[:-1])
    assert kept[0].sum() == N


def test_the_checksum_is_over_all_that_is_not_inline() -> None:
    leaf = LeafRecord(b"t", "uint8", 1, (4,), (1,), 4)
    data = encode(Contents([BlockRecord(1, 0, 0, 4)], [leaf], b"N.", b"abcd"))
    assert struct.unpack_from("<I", data, 8)[0] == zlib.crc32(data[12:-4])
