"""Where on the host a segment's pages lie: on the device's NUMA node, where Linux allows it.

The system call `mbind` has no wrapper in Python or in the C library; its numbers
are those of Linux's system-call tables. A policy on a shared mapping holds for
the file's pages, whoever allocates them later (Linux, `mm/shmem.c`).
"""

from __future__ import annotations

import ctypes
import platform
import sys

_MBIND = {"x86_64": 237, "aarch64": 235, "riscv64": 235, "ppc64le": 259, "s390x": 268}
_PREFERRED = 1  # MPOL_PREFERRED: other nodes serve when this one is full
_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def prefer_node(address: int, nbytes: int, node: int) -> bool:
    """Ask Linux to take the pages of a mapping from NUMA node `node`; return whether it will.

    Best effort: `False` on another system or processor, in a container that
    forbids the call, and for a node that does not exist. Pages that were
    allocated before stay where they are.
    """
    number = _MBIND.get(platform.machine())
    if number is None or not sys.platform.startswith("linux") or node < 0:
        return False
    words = node // _BITS + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // _BITS] = 1 << (node % _BITS)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    arguments = (number, address, nbytes, _PREFERRED, ctypes.addressof(mask), words * _BITS + 1, 0)
    return bool(call(*map(ctypes.c_long, arguments)) == 0)
