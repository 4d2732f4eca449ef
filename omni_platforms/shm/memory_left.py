"""How much memory the host and this process's control groups have left.

A control group that is over its limit kills a process instead of refusing an
allocation, so the arena asks before it allocates.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_ROOT = Path("/")


class MemoryLeft(NamedTuple):
    """Bytes that can still be used, and which limit says so."""

    nbytes: int
    limit: str


def memory_left(root: Path = _ROOT) -> MemoryLeft:
    """Return the least of what the host and the control groups have left. Does not block.

    Page cache that is not in use counts as left. Control groups that cannot be
    read (another system, a hidden file system) do not count.
    """
    host = MemoryLeft(psutil.virtual_memory().available, "the host's available memory")
    return min([host, *_control_groups(root)])


def _control_groups(root: Path) -> Iterator[MemoryLeft]:
    """Yield what each control group of this process, and each group above it, has left."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            yield from _left_in(folder, *names)
            if folder == mount:
                break


def _left_in(folder: Path, limit_name: str, usage_name: str) -> Iterator[MemoryLeft]:
    limit, usage = _text(folder / limit_name).strip(), _text(folder / usage_name).strip()
    if limit.isdigit() and usage.isdigit():  # "max" is no limit
        left = int(limit) - int(usage) + _idle_cache(folder)
        yield MemoryLeft(max(0, left), f"the control group's limit in {folder / limit_name}")


def _idle_cache(folder: Path) -> int:
    """Return the bytes of page cache that the kernel would give up first."""
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
