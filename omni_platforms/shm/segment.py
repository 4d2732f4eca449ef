"""One piece of shared memory: a descriptor, and where this process has mapped it.

On Linux it is a memfd: it has no name, so nothing can be left behind, and a
container's small /dev/shm does not bound it. Elsewhere it is POSIX shared
memory whose name is gone at once (`named.py`). Every page is allocated before
it is used, so a full machine is an error here and never a SIGBUS later, and the
size is sealed, so no process can take pages away from another.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from collections.abc import Iterator

from omni_platforms.errors import SegmentRefusedError
from omni_platforms.shm import named
from omni_platforms.shm.memory_left import memory_left
from omni_platforms.shm.placement import prefer_node

# A signal makes the kernel undo an allocation and begin again: one of this size
# comes to its end between two ticks of any profiler.
_STEP_BYTES = 64 << 20
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14; Python has no name for it


class Segment:
    """Shared memory of a fixed size, mapped once. `create` or `attach` make one.

    The mapping lasts as long as anything views it, also after `close()`.
    """

    def __init__(self, descriptor: int, mapping: mmap.mmap, kind: str, node: int | None) -> None:
        self.descriptor = descriptor
        """The open file; -1 once closed."""
        self.mapping = mapping
        self.kind = kind
        """"memfd", "named" or "attached"."""
        self.node = node
        """The NUMA node whose pages were asked for, or `None`."""
        self.size = len(mapping)

    @classmethod
    def create(cls, size: int, node: int | None = None) -> Segment:
        """Allocate, map and seal `size` bytes, on NUMA node `node` where that can be had.

        Blocks for about 0.3 ms a megabyte. Raises `SegmentRefusedError`, with
        nothing left behind, when memory, descriptors or a limit do not allow it.
        """
        with typed_refusal(f"{size} bytes of shared memory"), contextlib.ExitStack() as undo:
            _check_memory_left(size)
            descriptor, kind = _new_descriptor()
            undo.callback(os.close, descriptor)
            os.ftruncate(descriptor, size)
            mapping = mmap.mmap(descriptor, size)
            undo.callback(mapping.close)
            # Before the allocation, which takes the pages from where this says.
            placed = node is not None and prefer_node(address_of(mapping), size, node)
            _allocate(descriptor, mapping, size)
            _touch(mapping)
            _seal(descriptor)
            undo.pop_all()
        return cls(descriptor, mapping, kind, node if placed else None)

    @classmethod
    def attach(cls, descriptor: int) -> Segment:
        """Map the segment of a received descriptor, which is closed in any case.

        Raises `SegmentRefusedError` when it cannot be mapped.
        """
        try:
            size = os.fstat(descriptor).st_size
            with typed_refusal(f"{size} bytes of shared memory"):
                mapping = mmap.mmap(descriptor, size)
        except ValueError as error:
            raise SegmentRefusedError(
                "an empty segment was handed over: send the descriptors of an arena"
            ) from error
        finally:
            os.close(descriptor)
        _touch(mapping)
        return cls(-1, mapping, "attached", None)

    def give_up(self) -> None:
        """Give the pages back to the system at once, whoever has them mapped, and close.

        For a segment that nobody will read or write again: its bytes are gone. Where the
        system has no such call (macOS), the memory goes when the last mapping does.
        """
        if hasattr(mmap, "MADV_REMOVE"):
            with contextlib.suppress(OSError):  # a file system without holes
                self.mapping.madvise(mmap.MADV_REMOVE)
        self.close()

    def close(self) -> None:
        """Close the descriptor; the memory goes when the last mapping does."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def address_of(mapping: mmap.mmap) -> int:
    """Return the address of the first byte of a mapping."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def _check_memory_left(size: int) -> None:
    left = memory_left()
    if size > left.nbytes:
        raise SegmentRefusedError(
            f"{size} bytes of shared memory were asked for and {left.nbytes} are left under "
            f"{left.limit}. Free memory, or use a smaller arena."
        )


def _new_descriptor() -> tuple[int, str]:
    if not hasattr(os, "memfd_create"):
        return named.new_descriptor(), "named"
    return os.memfd_create("omni-platforms", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "memfd"


def _allocate(descriptor: int, mapping: mmap.mmap, size: int) -> None:
    """Give the file all of its pages."""
    for start in range(0, size, _STEP_BYTES):
        step = min(_STEP_BYTES, size - start)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, start, step)
        else:  # macOS: writing is the only way
            mapping[start : start + step] = bytes(step)


def _touch(mapping: mmap.mmap) -> None:
    """Enter the pages into this process's page table, so that no output pays for it."""
    with contextlib.suppress(OSError):  # an older kernel: they are entered when first used
        mapping.madvise(_POPULATE_WRITE)


def _seal(descriptor: int) -> None:
    """Fix the size for ever, for every process. Named memory cannot be sealed."""
    import fcntl

    if hasattr(fcntl, "F_ADD_SEALS") and hasattr(os, "memfd_create"):
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)


@contextlib.contextmanager
def typed_refusal(what: str) -> Iterator[None]:
    """Turn an `OSError` of the block into `SegmentRefusedError`, which names the limit."""
    try:
        yield
    except SegmentRefusedError:
        raise
    except OSError as error:
        raise SegmentRefusedError(
            f"the system refused {what}: {error.strerror} "
            f"({errno.errorcode.get(error.errno or 0, error.errno)}). {_remedy(error.errno)}"
        ) from error


def _remedy(code: int | None) -> str:
    import resource

    if code in (errno.EMFILE, errno.ENFILE):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"Raise the limit on open files (ulimit -n, now {soft}), or close some."
    if code == errno.EFBIG:
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        return f"Raise the limit on the size of a file (ulimit -f, now {soft} bytes)."
    if code == errno.ENOSPC:
        return (
            "The machine (for named memory: /dev/shm) has no room for it: free some, or use a "
            "smaller arena."
        )
    if code == errno.ENOMEM:
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        return f"Raise the limit on address space (ulimit -v, now {soft} bytes), or free memory."
    return "Look at the limits of this process and its container."
