"""The fresh segment of shared memory that engines commonly move an output through."""

from __future__ import annotations

import ctypes
import os
from multiprocessing.shared_memory import SharedMemory

import torch
from torch import Tensor

_WHERE = "/dev/shm"


def to_fresh_segment(host: Tensor) -> str:
    """Copy a contiguous host tensor into a new segment and return its name."""
    segment = SharedMemory(create=True, size=host.nbytes)
    ctypes.memmove(_address(segment), host.data_ptr(), host.nbytes)
    segment.close()
    return segment.name


def from_segment(name: str, nbytes: int) -> Tensor:
    """Return a private copy of a segment, as int32, and unlink it."""
    segment = SharedMemory(name=name)
    private = torch.empty(nbytes // 4, dtype=torch.int32)
    ctypes.memmove(private.data_ptr(), _address(segment), nbytes)
    segment.close()
    segment.unlink()
    return private


def room_for_segments() -> int | None:
    """Return how many bytes named segments may take here; `None` where nobody says.

    Whoever writes beyond it is killed by a signal, so look first.
    """
    try:
        found = os.statvfs(_WHERE)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _address(segment: SharedMemory) -> int:
    # The object that holds the buffer is gone on return: `close` refuses while there is one.
    assert segment.buf is not None
    return ctypes.addressof(ctypes.c_char.from_buffer(segment.buf))
