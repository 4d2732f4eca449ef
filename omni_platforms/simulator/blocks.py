"""Blocks of simulated memory, and the pattern that undefined memory is filled with."""

from __future__ import annotations

import ctypes
import zlib

import torch

from omni_platforms.simulator.graphs.pool import GraphPool
from omni_platforms.simulator.races import Access
from omni_platforms.simulator.task import Queue, Span, Task

POISON = 0xFF
"""The byte of undefined memory: NaN in the floating-point types, -1 in the signed integers."""


class Block:
    """Device memory: `size` bytes from `pointer` on, which belong to one stream.

    `storage` owns the bytes, so that a view of a freed block reads poison or the
    next owner's data, as on a device, but never memory that is gone.
    """

    def __init__(self, size: int, device: int, queue: Queue) -> None:
        self.storage = new_storage(size)
        self.pointer = self.storage.data_ptr()
        self.size = size
        self.device = device
        self.queue = queue
        self.requested = 0
        self.pool: GraphPool | None = None
        """The graphs that the block belongs to, where it was allocated in a capture."""
        self.users: set[Queue] = set()
        self.accesses: list[Access] = []
        fill_with_poison(self.pointer, size)

    @property
    def span(self) -> Span:
        """The block's addresses."""
        return Span(self.pointer, self.pointer + self.size)


class PinnedBlock:
    """Host memory that the device may reach: from the pool, or registered (no `storage`)."""

    def __init__(self, pointer: int, size: int, storage: torch.UntypedStorage | None) -> None:
        self.storage = storage
        self.pointer = pointer
        self.size = size
        self.tasks: list[Task] = []
        self.writer: Task | None = None
        """The latest task that writes this memory."""
        self.accesses: list[Access] = []

    def used_by(self, task: Task) -> None:
        """Note that `task` reads or writes this memory."""
        self.tasks = [*self.unfinished(), task]
        if task.writes and any(span.low in self.range() for span in task.writes):
            self.writer = task

    def range(self) -> range:
        """The block's addresses."""
        return range(self.pointer, self.pointer + self.size)

    def unfinished(self) -> list[Task]:
        """Return the tasks that still have to touch this memory."""
        return [task for task in self.tasks if not task.done]


def new_storage(size: int) -> torch.UntypedStorage:
    """Return `size` bytes of ordinary memory. No mode of torch sees that, unlike `torch.empty`."""
    return torch.UntypedStorage(size)  # type: ignore[no-untyped-call]


def checksum(pointer: int, size: int) -> int:
    """Return a number that tells whether these bytes have changed. Reads 1 GB a second."""
    return zlib.crc32((ctypes.c_char * size).from_address(pointer))


def fill_with_poison(pointer: int, size: int) -> None:
    """Overwrite `size` bytes with the pattern of undefined memory."""
    ctypes.memset(pointer, POISON, size)
