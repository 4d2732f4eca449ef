"""Finds the block of memory that an address lies in."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class HasRange(Protocol):
    """Something that occupies `size` bytes from the address `pointer` on."""

    pointer: int
    size: int


B = TypeVar("B", bound=HasRange)


class AddressMap(Generic[B]):
    """Blocks that do not overlap, by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, B] = {}

    def __iter__(self) -> Iterator[B]:
        return iter(list(self._blocks.values()))

    def add(self, block: B) -> None:
        """Add `block`."""
        bisect.insort(self._starts, block.pointer)
        self._blocks[block.pointer] = block

    def remove(self, block: B) -> None:
        """Remove `block`, which must be here."""
        del self._starts[bisect.bisect_left(self._starts, block.pointer)]
        del self._blocks[block.pointer]

    def find(self, address: int) -> B | None:
        """Return the block that `address` lies in, or `None`."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        block = self._blocks[self._starts[place]]
        return block if address < block.pointer + block.size else None

    def overlaps(self, pointer: int, size: int) -> bool:
        """Whether any block shares a byte with the `size` bytes from `pointer` on."""
        place = bisect.bisect_left(self._starts, pointer + size) - 1
        if place < 0:
            return False
        block = self._blocks[self._starts[place]]
        return pointer < block.pointer + block.size
