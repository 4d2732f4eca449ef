"""Making a worker's process: a fresh interpreter with this one's `sys.path` and flags."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from omni_platforms.engine.channel import pair

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from omni_platforms.engine.worker.main import main; main()"
)


def sockets(undo: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a socket pair, which `undo` closes."""
    ours, theirs = pair()
    undo.callback(ours.close)
    undo.callback(theirs.close)
    return ours, theirs


def pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    """Return the reading and the writing end of a pipe, which `undo` closes."""
    reading, writing = os.pipe()
    undo.callback(os.close, reading)
    undo.callback(os.close, writing)
    return reading, writing


def own_path() -> list[str]:
    """Return this process's `sys.path`, with whole names for what is relative to its folder."""
    return [os.path.abspath(p) if os.path.exists(p or ".") else p for p in sys.path]


def spawn(
    descriptors: Sequence[int],
    printing: int,
    environment: Mapping[str, str],
    path: Sequence[str] | None = None,
    folder: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a worker that gets `descriptors`, and prints to the descriptor `printing`.

    `path` is its `sys.path` and `folder` its current folder; this process's when `None`. Does
    not wait for it. Raises `OSError` when no process can be made.
    """
    found = json.dumps(own_path() if path is None else list(path))
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return subprocess.Popen(
        [sys.executable, "-u", *flags, "-c", _BOOT, found, *map(str, descriptors)],
        stdin=subprocess.DEVNULL,
        stdout=printing,
        stderr=printing,
        pass_fds=descriptors,
        env=environment,
        cwd=folder,
        start_new_session=True,  # the terminal's Ctrl-C is the parent's, which stops its workers
    )


def environment(platform: str | None, more: Mapping[str, str] | None) -> dict[str, str]:
    """Return the variables of a worker: this process's, its platform, and `more`."""
    chosen = {} if platform is None else {"OMNI_PLATFORM": platform}
    return {**os.environ, **chosen, **(more or {})}


def pidfd(pid: int) -> int | None:
    """Return a descriptor that is readable once the process is dead, where the system has it."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, or a sandbox that forbids it
        return None
