"""A benchmark that moved a wrong byte prints no number."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.bench.check import Pattern, stamp, stamp_of
from omni_platforms.errors import BenchError

HERE = torch.device("cpu")
SIZE = 4096
PATTERN = Pattern(SIZE)


def made(seed: int) -> torch.Tensor:
    return stamp(PATTERN.base_on(HERE), seed)


@given(st.integers(0, 1 << 40))
def test_what_was_made_for_a_round_is_right(seed: int) -> None:
    PATTERN.check(made(seed).reshape(2, -1), seed, "a copy")


@given(st.integers(0, 100_000), st.integers(0, SIZE - 1), st.integers(1, 255))
def test_any_wrong_byte_is_seen_where_it_is(seed: int, place: int, change: int) -> None:
    value = made(seed)
    value.view(torch.uint8)[place] ^= change
    where = f"1 of 1024 elements are wrong in round {seed}, the first at byte {place - place % 4} "
    with pytest.raises(BenchError, match=where):
        PATTERN.check(value, seed, "a copy")


@given(st.integers(0, 1 << 30), st.integers(1, 1 << 20))
def test_the_bytes_of_another_round_are_wrong_everywhere(seed: int, later: int) -> None:
    with pytest.raises(BenchError, match="1024 of 1024 elements"):
        PATTERN.check(made(seed), seed + later, "a late copy")


def test_memory_that_was_never_written_is_seen() -> None:
    with pytest.raises(BenchError, match=r"pinned pool: 102[34] of 1024"):
        PATTERN.check(torch.zeros(SIZE // 4, dtype=torch.int32), 7, "pinned pool")


@pytest.mark.parametrize("value", [torch.zeros(1024), torch.zeros(1023, dtype=torch.int32)])
def test_another_shape_or_type_is_seen(value: torch.Tensor) -> None:
    with pytest.raises(BenchError, match="arrived instead of 4096 bytes"):
        PATTERN.check(value, 0, "a copy")


@pytest.mark.parametrize("nbytes", [0, -4, 10])
def test_sizes_that_cannot_be_are_refused(nbytes: int) -> None:
    with pytest.raises(ValueError, match="multiple of 4"):
        Pattern(nbytes)


def test_elements_of_one_output_differ() -> None:
    """So that bytes at a wrong place are wrong bytes."""
    assert len(set(made(3).tolist())) == SIZE // 4
    assert len({stamp_of(seed) for seed in range(10_000)}) == 10_000
