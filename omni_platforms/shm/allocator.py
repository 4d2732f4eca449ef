"""Blocks inside segments: a pure allocator that touches no memory and takes no lock.

Best fit: a block is cut from the smallest free range that holds it, the first
of equals, so that a loop of equal outputs gets the same blocks again. A freed
block joins its free neighbours at once and can be used by the next call. What
is lost inside a block is less than `ALIGNMENT` bytes; ranges of two segments
never join, and a block never lies in two.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

ALIGNMENT = 4096
"""Blocks begin and end at multiples of so many bytes: a page, which devices copy to fastest."""


class Block(NamedTuple):
    """A range of one segment; `size` bytes, a multiple of `ALIGNMENT`."""

    segment: int
    offset: int
    size: int


class Allocator:
    """Which ranges of which segments are free. Callers hold a lock of their own."""

    def __init__(self) -> None:
        self.segment_sizes: dict[int, int] = {}
        """Bytes of each segment, by its number. A number never serves twice."""
        self._next_segment = 0
        self.used_bytes = 0
        """Bytes of the blocks that are in use."""
        self._used: dict[tuple[int, int], int] = {}
        # The free ranges, three times: in order of size, by where they start, by where they end.
        self._by_size: list[tuple[int, int, int]] = []
        self._starting: dict[tuple[int, int], int] = {}
        self._ending: dict[tuple[int, int], int] = {}

    @property
    def total_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(self.segment_sizes.values())

    @property
    def used_blocks(self) -> int:
        """How many blocks are in use."""
        return len(self._used)

    @property
    def largest_free(self) -> int:
        """Bytes of the largest block that could be had now."""
        return self._by_size[-1][0] if self._by_size else 0

    @property
    def free_ranges(self) -> int:
        """In how many pieces the free memory lies."""
        return len(self._by_size)

    def add_segment(self, size: int) -> int:
        """Take in a segment of `size` bytes, a multiple of `ALIGNMENT`; return its number."""
        if size <= 0 or size % ALIGNMENT:
            raise ValueError(f"a segment of {size} bytes is not a multiple of {ALIGNMENT}")
        number, self._next_segment = self._next_segment, self._next_segment + 1
        self.segment_sizes[number] = size
        self._add_free(Block(number, 0, size))
        return number

    def whole_free_segments(self) -> dict[int, int]:
        """Return the segments in which no block is in use: their bytes, by their numbers."""
        sizes = self.segment_sizes
        return {n: size for n, size in sizes.items() if self._starting.get((n, 0)) == size}

    def remove_segment(self, number: int) -> None:
        """Take a segment out. Raises `ValueError` where a block of it is in use."""
        size = self.segment_sizes[number]
        if self._starting.get((number, 0)) != size:
            raise ValueError(f"segment {number} has blocks in use, and cannot be removed")
        self._remove_free(Block(number, 0, size))
        del self.segment_sizes[number]

    def allocate(self, nbytes: int) -> Block | None:
        """Return a block of at least `nbytes` (more than 0), or `None` where none is free."""
        size = round_up(nbytes)
        place = bisect_left(self._by_size, (size, 0, 0))
        if size <= 0 or place == len(self._by_size):
            return None
        whole, segment, offset = self._by_size[place]
        self._remove_free(Block(segment, offset, whole))
        if whole > size:
            self._add_free(Block(segment, offset + size, whole - size))
        self._used[segment, offset] = size
        self.used_bytes += size
        return Block(segment, offset, size)

    def free(self, block: Block) -> None:
        """Give a block back. Raises `ValueError` for one that is not in use."""
        segment, offset, size = block
        if self._used.get((segment, offset)) != size:
            raise ValueError(f"{block} is not in use: it was freed already, or never allocated")
        del self._used[segment, offset]
        self.used_bytes -= size
        before = self._ending.get((segment, offset))
        if before is not None:
            self._remove_free(Block(segment, before, offset - before))
            offset, size = before, size + offset - before
        after = self._starting.get((segment, offset + size))
        if after is not None:
            self._remove_free(Block(segment, offset + size, after))
            size += after
        self._add_free(Block(segment, offset, size))

    def _add_free(self, block: Block) -> None:
        segment, offset, size = block
        insort(self._by_size, (size, segment, offset))
        self._starting[segment, offset] = size
        self._ending[segment, offset + size] = offset

    def _remove_free(self, block: Block) -> None:
        segment, offset, size = block
        del self._by_size[bisect_left(self._by_size, (size, segment, offset))]
        del self._starting[segment, offset]
        del self._ending[segment, offset + size]


def round_up(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Return the smallest multiple of `alignment` that holds `nbytes`."""
    return -(-nbytes // alignment) * alignment
