"""A lease: one block belongs to the consumer until nothing views its memory any more.

Tensors and arrays are made over an object that exports the block's memory, and
every one of them, and whatever is derived from it, holds on to that object: the
storage of a tensor does (torch 2.13, `torch/csrc/utils/tensor_new.cpp`), a
NumPy array does through its base, a memoryview through its buffer. So when
the object goes, the last view is gone, and only then.

Giving back happens wherever the last reference dies: on any thread, inside the
garbage collector, while the interpreter ends. It takes no lock, and writes once
to a pipe that is never full. A forked child has copies of its parent's
objects, and gives nothing back when they die.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import mmap
import os
import weakref
from collections import deque
from operator import attrgetter
from typing import Any

from omni_platforms.shm.returns import ReturnEnd, as_record

_serials = itertools.count()
_open: dict[int, Lease] = {}
"""Leases that have not ended: what keeps a weak reference alive until its memory is gone."""


class Lease(weakref.ref[Any]):
    """A weak reference to what exports the block's memory."""

    __slots__ = ("end", "process", "record", "serial")

    def __new__(cls, exporter: Any, number: int, end: ReturnEnd) -> Lease:
        """Open lease `number` on what `exporter` exports."""
        return super().__new__(cls, exporter, _give_back)

    def __init__(self, exporter: Any, number: int, end: ReturnEnd) -> None:
        super().__init__(exporter, _give_back)  # type: ignore[call-arg]
        self.serial = next(_serials)
        self.record = as_record(number)
        self.end = end
        self.process = os.getpid()
        _open[self.serial] = self


def lease(mapping: mmap.mmap, offset: int, nbytes: int, number: int, end: ReturnEnd) -> Any:
    """Return an object that exports `nbytes` of a mapping and returns lease `number` when it dies.

    It keeps the mapping alive as well.
    """
    exporter = _bytes_type(nbytes).from_buffer(mapping, offset)
    Lease(exporter, number, end)
    return exporter


def lease_array(array: Any, number: int, end: ReturnEnd) -> Any:
    """Return an object that exports a NumPy array's bytes, as `lease`, and keeps the array alive.

    The bytes can be written, whatever the array says: they must be this process's alone.
    """
    exporter = _bytes_type(array.nbytes).from_address(array.ctypes.data)
    exporter.array = array
    Lease(exporter, number, end)
    return exporter


def open_leases() -> int:
    """Count the leases of this process that have not ended."""
    return len(_open)


def sweep() -> None:
    """Give back what an interrupted `_give_back` left: Ctrl-C can come between any two lines."""
    for left in list(_open.values()):
        if left() is None:
            _give_back(left)


def _give_back(
    ended: Lease,
    process: Any = os.getpid,
    write: Any = os.write,
    open_: dict[int, Lease] = _open,
    record: Any = attrgetter("record"),
) -> None:
    """Return a lease, once. The defaults are there also while modules are taken down."""
    if process() != ended.process:
        return
    # One call from here on: nothing, neither a signal nor another thread, can come between
    # taking the lease out and writing its number.
    numbers = map(record, map(open_.pop, (ended.serial,)))
    with contextlib.suppress(KeyError, BrokenPipeError):  # returned already; the worker is gone
        deque(map(write, (ended.end.descriptor,), numbers), maxlen=0)


@functools.lru_cache(maxsize=128)
def _bytes_type(nbytes: int) -> Any:
    """Return the type of `nbytes` bytes; making one takes 60 us, and outputs are alike."""
    return ctypes.c_ubyte * nbytes
