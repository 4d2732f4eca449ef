"""The parent's death ends the worker, whatever the worker does at that moment.

The lifeline is a pipe whose other end only the parent has. When the parent's
process is gone, however it ended, the kernel closes that end, and sends SIGKILL to
the worker itself (`O_ASYNC` with `F_SETSIG`, Linux): a call that holds the GIL for minutes
does not save it. A thread does the same on systems that have no such signal.

`PR_SET_PDEATHSIG` would be wrong: it means the end of the *thread* that started
the worker (prctl(2)).
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading


def hold(descriptor: int) -> None:
    """Let this process be killed when the other end of the pipe `descriptor` closes."""
    os.set_inheritable(descriptor, False)
    if hasattr(fcntl, "F_SETSIG"):
        _ask_the_kernel(descriptor)
    watcher = threading.Thread(target=_watch, args=(descriptor,), name="omni-lifeline", daemon=True)
    watcher.start()


def _ask_the_kernel(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if poller.poll(0):  # it was gone before the kernel was asked
        _die()


def _watch(descriptor: int) -> None:
    os.read(descriptor, 1)  # nobody writes: it returns at the end of the pipe
    _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
