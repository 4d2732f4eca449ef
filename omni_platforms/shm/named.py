"""Shared memory with a name, for systems that have no `memfd_create`.

The name lasts only from the creation to the next line, as consumers are given
the descriptor: a process that is killed in between leaves it behind, and the
next one sweeps it. A name tells its owner: process, start time (a process
number serves again) and process namespace (another container's processes cannot
be seen from here). Only names of owners that are certainly dead are removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from pathlib import Path

import psutil

PREFIX = "omni"
_NAME = re.compile(rf"{PREFIX}-([0-9a-f]+)-([0-9a-f]+)-([0-9a-f]+)-[0-9a-f]+")
_FOLDER = Path("/dev/shm")
_numbers = itertools.count()


def new_descriptor() -> int:
    """Return a descriptor of new, empty shared memory that only this process knows.

    Raises `OSError` as `shm_open` does.
    """
    import _posixshmem  # type: ignore[import-not-found]  # what the standard library uses

    name = f"/{PREFIX}-{os.getpid():x}-{_start(os.getpid()) or 0:x}-{_namespace():x}-{_next():x}"
    descriptor = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    with contextlib.suppress(FileNotFoundError):
        _posixshmem.shm_unlink(name)
    return int(descriptor)


def sweep(folder: Path = _FOLDER) -> list[str]:
    """Remove the names that dead processes of this user left; return them.

    Only where names can be listed (Linux). Names of living or unknown owners
    and everybody else's are left alone.
    """
    removed = []
    for file in folder.glob(f"{PREFIX}-*") if folder.is_dir() else ():
        try:
            if file.lstat().st_uid == os.getuid() and _owner_is_dead(file.name):
                file.unlink()
                removed.append(file.name)
        except FileNotFoundError:  # its owner, or another sweep, was faster
            continue
    return removed


def _owner_is_dead(name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    process, start, namespace = (int(part, 16) for part in match.groups())
    if namespace != _namespace() or not start:
        return False
    if not psutil.pid_exists(process):
        return True
    now = _start(process)
    return now is not None and now != start


def _start(process: int) -> int | None:
    """Return when a process started, in clock ticks since boot, or `None` if nobody says."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    # The command's name comes second, in parentheses, and may hold spaces.
    return int(text.rpartition(")")[2].split()[19])


def _namespace() -> int:
    try:
        text = os.readlink("/proc/self/ns/pid")
    except OSError:
        return 0
    return int("".join(filter(str.isdigit, text)) or 0)


def _next() -> int:
    return next(_numbers)
