"""Registration with the device: whole, in pieces, or not at all, and never half."""

from __future__ import annotations

import logging
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import (
    HostRegistrationError,
)
from omni_platforms.platform.cpu import CpuPlatform
from omni_platforms.platform.registration import RegisteredHostMemory
from omni_platforms.shm import Arena, registered
from omni_platforms.shm.registered import WritableSegment
from omni_platforms.shm.segment import Segment

MB = 1 << 20
PAGE = 4096


class Registers(CpuPlatform):
    """A platform whose device registers at most `largest` bytes, and `total` together."""

    def __init__(self, largest: int, total: int = 1 << 40) -> None:
        self.largest, self.total = largest, total
        self.registered: dict[int, int] = {}

    def register_host_memory(self, buffer: Any) -> RegisteredHostMemory | None:
        size, address = buffer.numel(), buffer.data_ptr()
        if size > self.largest or sum(self.registered.values()) + size > self.total:
            raise HostRegistrationError(f"{size} bytes are too many")
        self.registered[address] = size
        return RegisteredHostMemory(buffer, lambda: self.registered.pop(address) and None)


@pytest.fixture(autouse=True)
def _pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_is_pinned", lambda tensor: True)
    monkeypatch.setattr(registered, "SMALLEST_PIECE", 4 * PAGE)


def writable(platform: CpuPlatform, pages: int = 64) -> WritableSegment:
    return WritableSegment(Segment.create(pages * PAGE), platform, torch.device("cpu"))


def test_a_segment_is_registered_whole_where_that_works() -> None:
    platform = Registers(64 * PAGE)
    made = writable(platform)
    assert list(platform.registered.values()) == [64 * PAGE]
    assert len(made.parts(PAGE, 20 * PAGE)) == 1
    made.close()
    assert not platform.registered


def test_a_device_with_a_limit_gets_pieces_and_no_copy_crosses_two() -> None:
    platform = Registers(16 * PAGE)
    made = writable(platform)
    assert list(platform.registered.values()) == [16 * PAGE] * 4
    start = made.bytes.data_ptr()
    pieces = [(a - start, a - start + n) for a, n in platform.registered.items()]
    for offset in range(0, 48 * PAGE, PAGE):
        for nbytes in (1, PAGE, 16 * PAGE, 64 * PAGE - offset):
            parts = made.parts(offset, nbytes)
            assert sum(part.numel() for part in parts) == nbytes
            at = offset
            for part in parts:
                assert part.data_ptr() == start + at
                end = at + part.numel()
                assert any(a <= at and end <= b for a, b in pieces)
                at = end
    made.close()
    assert not platform.registered


def test_a_block_that_serves_again_is_looked_at_as_the_new_output_wants() -> None:
    made = writable(Registers(64 * PAGE))
    first = made.like(PAGE, 4 * PAGE, torch.float32, torch.Size((64, 64)))
    assert first is made.like(PAGE, 4 * PAGE, torch.float32, torch.Size((64, 64)))
    for dtype, shape in (
        (torch.int32, (64, 64)),
        (torch.float32, (4096,)),
        (torch.bfloat16, (8192,)),
    ):
        other = made.like(PAGE, 4 * PAGE, dtype, torch.Size(shape))
        assert other is not None
        assert (other.dtype, other.shape) == (dtype, shape)
        assert other.data_ptr() == made.bytes.data_ptr() + PAGE
    for pages in range(1000):
        assert made.like(0, pages, torch.uint8, torch.Size((pages,))) is not None
        assert len(made._made) <= registered._MOST_MADE
    made.close()


def test_a_block_in_two_registrations_has_no_single_view() -> None:
    made = writable(Registers(16 * PAGE))
    assert made.like(8 * PAGE, 16 * PAGE, torch.uint8, torch.Size((16 * PAGE,))) is None
    assert made.like(8 * PAGE, 8 * PAGE, torch.uint8, torch.Size((8 * PAGE,))) is not None
    made.close()


def test_a_partial_registration_is_rolled_back(caplog: pytest.LogCaptureFixture) -> None:
    platform = Registers(16 * PAGE, total=40 * PAGE)
    with caplog.at_level(logging.WARNING):
        made = writable(platform)
    assert not platform.registered
    assert not made.is_registered
    assert "too many" in made.refusal
    assert "outputs are staged" in caplog.text
    made.close()


def test_an_unexpected_error_of_a_later_piece_rolls_back_too() -> None:
    platform = Registers(1 << 40)
    register, calls = platform.register_host_memory, []

    def fail_at_third(buffer: Any) -> Any:
        calls.append(buffer)
        if len(calls) == 1:
            raise HostRegistrationError("too large")
        if len(calls) == 3:
            raise RuntimeError("planted")
        return register(buffer)

    with (
        mock.patch.object(platform, "register_host_memory", fail_at_third),
        pytest.raises(RuntimeError, match="planted"),
    ):
        Arena(platform, cap=MB, segment_bytes=MB)
    assert not platform.registered


def test_memory_that_torch_does_not_see_as_pinned_is_not_used_as_registered() -> None:
    platform = Registers(1 << 40)
    with mock.patch.object(registered, "_is_pinned", return_value=False):
        made = writable(platform)
    assert not made.is_registered
    assert "does not see" in made.refusal
    assert not platform.registered
    made.close()


def test_an_arena_that_is_let_go_is_closed() -> None:
    platform = Registers(1 << 40)
    arena = Arena(platform, cap=MB, segment_bytes=MB)
    assert platform.registered
    del arena
    assert not platform.registered
