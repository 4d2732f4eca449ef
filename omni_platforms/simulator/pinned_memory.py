"""Pinned host memory: a pool, and existing memory that was registered.

Pool blocks are powers of two, as torch's own pinned allocator makes them. A
block goes to the next owner only when no queued task touches it any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from omni_platforms.errors import HostRegistrationError
from omni_platforms.simulator.addresses import AddressMap
from omni_platforms.simulator.blocks import PinnedBlock, fill_with_poison, new_storage
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.statistics import Statistic
from omni_platforms.simulator.task import Task


class PinnedMemory:
    """All pinned memory of the process. Any thread may call any method."""

    def __init__(self, gate: Gate, check_growth: Callable[[str], None]) -> None:
        self._gate = gate
        self._check_growth = check_growth
        self._used: AddressMap[PinnedBlock] = AddressMap()
        self._free: dict[int, list[PinnedBlock]] = defaultdict(list)
        self._active = Statistic()
        self._reserved = Statistic()
        self._blocks_made = self._blocks_freed = 0

    def allocate(self, nbytes: int) -> int:
        """Return the address of `nbytes` (more than 0) of undefined pinned memory."""
        size = 1 << (nbytes - 1).bit_length()
        with self._gate:
            block = self._reuse(size) or self._new_block(size)
            block.tasks, block.accesses = [], []
            self._used.add(block)
            self._active.change(size)
            return block.pointer

    def free(self, pointer: int) -> None:
        """Take a block back into the pool."""
        self._gate.when_released(lambda: self._free_now(pointer))

    def find(self, address: int) -> PinnedBlock | None:
        """Return the pinned block in use that `address` lies in, or `None`."""
        with self._gate:
            return self._used.find(address)

    def record_use(self, address: int, task: Task | None) -> bool:
        """Note that `task` touches the memory at `address`; return whether that is pinned."""
        with self._gate:
            block = self._used.find(address)
            if block is not None and task is not None:
                block.used_by(task)
            return block is not None

    def register(self, pointer: int, nbytes: int) -> None:
        """Pin existing memory. Raises `HostRegistrationError` for memory that is pinned."""
        with self._gate:
            self._check_growth("a registration of host memory")
            if self._used.overlaps(pointer, nbytes):
                raise HostRegistrationError(
                    f"{nbytes} bytes at {pointer:#x} are pinned already, at least in part. "
                    "Unregister the memory first, and do not register pinned tensors."
                )
            self._used.add(PinnedBlock(pointer, nbytes, None))

    def unregister(self, pointer: int) -> None:
        """Undo `register`. Raises `HostRegistrationError`, also while a task uses the memory."""
        with self._gate:
            block = self._used.find(pointer)
            if block is None or block.pointer != pointer or block.storage is not None:
                raise HostRegistrationError(
                    f"no memory is registered at {pointer:#x}. Unregister the address that was "
                    "registered, and once."
                )
            if block.unfinished():
                raise HostRegistrationError(
                    f"the memory at {pointer:#x} is still used by {block.unfinished()[0]}. "
                    "Wait for the copies from and to it before unregistering it."
                )
            self._used.remove(block)

    def registered(self) -> list[PinnedBlock]:
        """Return the memory that is registered now."""
        with self._gate:
            return [block for block in self._used if block.storage is None]

    def release_cached(self) -> None:
        """Give the cached blocks back that no task touches; does not wait."""
        with self._gate:
            for size, blocks in self._free.items():
                kept = [block for block in blocks if block.unfinished()]
                self._reserved.change(-size * (len(blocks) - len(kept)))
                self._blocks_freed += len(blocks) - len(kept)
                blocks[:] = kept

    def start_run(self) -> None:
        """Drop cached blocks and counts at the start of a run; nothing may be queued."""
        self.release_cached()
        for block in self._used:
            block.tasks, block.accesses = [], []
        self.reset_statistics()

    def statistics(self) -> dict[str, int]:
        """Return bytes and counts under the names that torch's pinned allocator uses."""
        with self._gate:
            return {
                "active_bytes.current": self._active.current,
                "active_bytes.peak": self._active.peak,
                "allocated_bytes.current": self._reserved.current,
                "allocated_bytes.peak": self._reserved.peak,
                "num_host_alloc": self._blocks_made,
                "num_host_free": self._blocks_freed,
            }

    def reset_statistics(self) -> None:
        """Let the peaks be the current values and the counts zero."""
        self._blocks_made = self._blocks_freed = 0
        for statistic in (self._active, self._reserved):
            statistic.peak = statistic.current

    def _reuse(self, size: int) -> PinnedBlock | None:
        for place, block in enumerate(self._free[size]):
            if not block.unfinished():
                return self._free[size].pop(place)
        return None

    def _new_block(self, size: int) -> PinnedBlock:
        self._check_growth("new pinned memory")
        storage = new_storage(size)
        fill_with_poison(storage.data_ptr(), size)
        self._reserved.change(size)
        self._blocks_made += 1
        return PinnedBlock(storage.data_ptr(), size, storage)

    def _free_now(self, pointer: int) -> None:
        block = self._used.find(pointer)
        if block is None:
            raise AssertionError(f"pinned address {pointer:#x} is freed twice")
        self._used.remove(block)
        self._active.change(-block.size)
        self._free[block.size].append(block)
