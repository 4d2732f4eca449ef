"""A thread near its device: on the processors of the NUMA node that the device is attached to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_NODES = Path("/sys/devices/system/node")


def run_near(node: int | None) -> bool:
    """Keep the calling thread on the processors of `node`; return whether it is.

    Best effort: `False` where the node is not known, has no processor that this
    process may use, or the system has no such call. Other threads stay where they are.
    """
    if node is None or not hasattr(os, "sched_setaffinity"):
        return False
    with contextlib.suppress(OSError, ValueError):
        processors = processors_of(node) & os.sched_getaffinity(0)
        if processors:
            os.sched_setaffinity(0, processors)  # 0 is the calling thread on Linux
            return True
    return False


def processors_of(node: int) -> set[int]:
    """Return the processors of a NUMA node. Raises `OSError` where Linux does not know it."""
    return parse_list((_NODES / f"node{node}" / "cpulist").read_text())


def parse_list(text: str) -> set[int]:
    """Read Linux's way to write a set of processors: "0-3,8"."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
