"""The memory of a graph: kept apart, so that its addresses stay good for every replay."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from omni_platforms.simulator.task import Queue

if TYPE_CHECKING:
    from omni_platforms.simulator.blocks import Block

PoolId = tuple[int, int]
"""torch's name of a pool; `(0, 0)` is none."""


class GraphPool:
    """Blocks that only captures into this pool may take. Used with the gate held."""

    def __init__(self, number: PoolId) -> None:
        self.number = number
        self.graphs = 0
        """How many graphs use the pool; it is dead when the last one is gone."""
        self.free: dict[tuple[Queue, int], list[Block]] = defaultdict(list)
        self._set_aside: list[Block] = []

    def put_back(self, block: Block) -> None:
        """Take a freed block. One that several streams of a graph used has no next owner."""
        if block.users:
            self._set_aside.append(block)
        else:
            self.free[block.queue, block.size].append(block)

    def take_all(self) -> list[Block]:
        """Return the free blocks of a pool without graphs, which are nobody's now."""
        blocks = [block for blocks in self.free.values() for block in blocks] + self._set_aside
        self.free.clear()
        self._set_aside = []
        return blocks


class GraphPools:
    """The pools by number."""

    def __init__(self) -> None:
        self._pools: dict[PoolId, GraphPool] = {}
        self._made = 0

    def new_number(self) -> PoolId:
        """Return a number that no pool has."""
        self._made += 1
        return (0, self._made)

    def enter(self, number: PoolId) -> GraphPool:
        """Return the pool `number`, made on first use, for one graph more."""
        if number == (0, 0):
            number = self.new_number()
        pool = self._pools.setdefault(number, GraphPool(number))
        pool.graphs += 1
        return pool

    def leave(self, pool: GraphPool) -> bool:
        """Let one graph go; return whether it was the last one of the pool."""
        pool.graphs -= 1
        if not pool.graphs:
            self._pools.pop(pool.number, None)
        return not pool.graphs
