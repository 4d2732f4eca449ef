"""The allocator under every order of calls: nothing overlaps, nothing is lost."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from omni_platforms.shm.allocator import ALIGNMENT, Allocator, Block, round_up

PAGE = ALIGNMENT


class AllocatorMachine(RuleBasedStateMachine):
    """Compares the allocator with a plain list of the blocks in use."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = Allocator()
        self.used: list[Block] = []
        self.added = 0

    @precondition(lambda self: len(self.allocator.segment_sizes) < 4)
    @rule(pages=st.integers(1, 16))
    def add_segment(self, pages: int) -> None:
        number = self.allocator.add_segment(pages * PAGE)
        assert number == self.added, "a number never serves twice"
        self.added += 1

    @rule(nbytes=st.integers(1, 8 * PAGE))
    def allocate(self, nbytes: int) -> None:
        largest = self.allocator.largest_free
        block = self.allocator.allocate(nbytes)
        assert (block is None) == (largest < nbytes)
        if block is not None:
            assert nbytes <= block.size < nbytes + PAGE
            assert block.offset % PAGE == 0
            self.used.append(block)

    @precondition(lambda self: self.used)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = self.used.pop(data.draw(st.integers(0, len(self.used) - 1)))
        self.allocator.free(block)
        with pytest.raises(ValueError, match="not in use"):
            self.allocator.free(block)

    @precondition(lambda self: self.allocator.segment_sizes)
    @rule(data=st.data())
    def remove_segment(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.allocator.segment_sizes)))
        in_use = any(block.segment == number for block in self.used)
        assert (number in self.allocator.whole_free_segments()) == (not in_use)
        if in_use:
            with pytest.raises(ValueError, match="in use"):
                self.allocator.remove_segment(number)
        else:
            self.allocator.remove_segment(number)

    @invariant()
    def no_two_blocks_overlap_and_none_leaves_its_segment(self) -> None:
        for number, size in self.allocator.segment_sizes.items():
            mine = sorted(block for block in self.used if block.segment == number)
            edges = [0, *(edge for block in mine for edge in (block.offset, sum(block[1:]))), size]
            assert edges == sorted(edges)

    @invariant()
    def free_ranges_are_exactly_the_gaps(self) -> None:
        gaps = []
        for number, size in self.allocator.segment_sizes.items():
            at = 0
            for block in sorted(block for block in self.used if block.segment == number):
                gaps.append(block.offset - at)
                at = block.offset + block.size
            gaps.append(size - at)
        gaps = [gap for gap in gaps if gap]
        assert self.allocator.free_ranges == len(gaps)
        assert self.allocator.largest_free == max(gaps, default=0)
        assert self.allocator.used_bytes + sum(gaps) == self.allocator.total_bytes

    def teardown(self) -> None:
        for block in self.used:
            self.allocator.free(block)
        assert self.allocator.free_ranges == len(self.allocator.segment_sizes)
        assert self.allocator.largest_free == max(self.allocator.segment_sizes.values(), default=0)


_LIMITS = settings(max_examples=40, stateful_step_count=30, deadline=None)
# To see that there is a failure it need not be made small.
_BRIEF = settings(_LIMITS, phases=[Phase.generate], report_multiple_bugs=False, database=None)


def test_every_order_of_calls() -> None:
    run_state_machine_as_test(AllocatorMachine, settings=_LIMITS)


class Blind(dict[Any, Any]):
    """Finds nothing."""

    def get(self, *args: Any) -> None:
        return None


class Forgetful(Allocator):
    """Does not join a freed block with the free range before it."""

    def __init__(self) -> None:
        super().__init__()
        self._ending = Blind()


class Overlapping(Allocator):
    """Cuts blocks one page too late."""

    def allocate(self, nbytes: int) -> Block | None:
        block = super().allocate(nbytes)
        return block and block._replace(offset=block.offset + PAGE)


class Reckless(Allocator):
    """Takes out a segment that has blocks in use."""

    def remove_segment(self, number: int) -> None:
        if number in self.whole_free_segments():
            super().remove_segment(number)
        else:
            del self.segment_sizes[number]


@pytest.mark.parametrize("wrong", [Forgetful, Overlapping, Reckless])
def test_the_machine_sees_a_wrong_allocator(wrong: type[Allocator]) -> None:
    with (
        mock.patch(f"{__name__}.Allocator", wrong),
        pytest.raises((AssertionError, ValueError, KeyError, pytest.fail.Exception)),
    ):
        run_state_machine_as_test(AllocatorMachine, settings=_BRIEF)


def test_a_freed_block_is_what_the_next_equal_output_gets() -> None:
    allocator = Allocator()
    allocator.add_segment(64 * PAGE)
    first = allocator.allocate(10 * PAGE)
    second = allocator.allocate(10 * PAGE)
    assert first is not None
    assert second is not None
    allocator.free(first)
    assert allocator.allocate(10 * PAGE - 5) == first


def test_the_smallest_range_that_fits_is_cut() -> None:
    allocator = Allocator()
    allocator.add_segment(32 * PAGE)
    blocks = [allocator.allocate(n * PAGE) for n in (5, 1, 3, 1)]
    for block in (blocks[0], blocks[2]):
        assert block is not None
        allocator.free(block)
    assert allocator.allocate(2 * PAGE) == (0, 6 * PAGE, 2 * PAGE)


def test_a_long_mixture_stays_in_few_pieces() -> None:
    """20,000 outputs of five sizes, in random order of death, in memory for 1.5 times as much."""
    allocator, chance = Allocator(), random.Random(7)
    sizes = [PAGE * n for n in (3, 12, 48, 97, 200)]
    live_limit = 2000 * PAGE
    allocator.add_segment(live_limit * 3 // 2)
    live: list[Block] = []
    for _ in range(20_000):
        size = chance.choice(sizes)
        while sum(block.size for block in live) + size > live_limit:
            allocator.free(live.pop(chance.randrange(len(live))))
        block = allocator.allocate(size)
        assert block is not None, "fragmented"
        live.append(block)


@pytest.mark.parametrize("size", [0, -PAGE, PAGE + 1])
def test_segments_are_whole_pages(size: int) -> None:
    with pytest.raises(ValueError, match="multiple"):
        Allocator().add_segment(size)


def test_rounding() -> None:
    assert [round_up(n, 8) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
