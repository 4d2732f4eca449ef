"""`Child`: the operating system's side of a worker: a process that starts, prints, and ends.

It is a fresh interpreter (no fork, no `multiprocessing`): this process's main script is not run
again and needs no `__main__` guard, and no helper process stays. It gets a `sys.path`, the
descriptors that it is given, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence

from omni_platforms.engine import spawning
from omni_platforms.engine.last_output import LastOutput

_KILL_GRACE_S = 5.0
_PRINTED_GRACE_S = 1.0  # for what a dead worker had printed to be read


class Child:
    """A worker's process, which does not outlive this one, nor this object.

    Making one starts the process and does not wait for it. Any thread may call the methods.

    Parameters:
        name: of the worker, for threads and messages.
        descriptors: the ends of its channel and of its arena's socket. They stay the caller's.
        environment: its variables, all of them.
        path: its `sys.path`; this process's when `None`.
        folder: its current folder; this process's when `None`.

    Raises `OSError` when no process can be made.
    """

    exit_seen_s = 1.0
    """A closed channel is seen before the exit of its process: so much before, at most."""

    def __init__(
        self,
        name: str,
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        path: Sequence[str] | None = None,
        folder: str | None = None,
    ) -> None:
        self.name = name
        with contextlib.ExitStack() as undo:
            reading, self._lifeline = spawning.pipe(undo)
            printed, printing = spawning.pipe(undo)
            ends = [*descriptors, reading]
            self._popen = spawning.spawn(ends, printing, environment, path, folder)
            undo.pop_all()
        os.close(reading)
        os.close(printing)
        self.death = spawning.pidfd(self._popen.pid)
        """A descriptor that is readable once the process is dead, where the system has it."""
        # Closing the lifeline ends the worker: who lets go of this object lets go of the process.
        self._let_go = weakref.finalize(self, _close_all, self._lifeline, self.death)
        self._let_go.atexit = False
        self._printed = LastOutput(printed, name)
        self._closed = False
        _all.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, pid {self.pid}: {self.state()}>"

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._popen.pid

    def is_alive(self) -> bool:
        """Whether the process is running. Does not block."""
        return self._popen.poll() is None

    def state(self) -> str:
        """Return in words whether it runs or how it ended: "killed by SIGKILL"."""
        return exit_words(self._popen.poll())

    def printed(self) -> str:
        """Return the last lines that it printed."""
        return self._printed.text()

    def printed_note(self) -> str:
        """Return the last lines that it printed as the end of a message, or nothing."""
        if not self.is_alive():
            self._printed.finish(_PRINTED_GRACE_S)
        text = self.printed()
        return f" What it printed last:\n{text}" if text else ""

    def wait_exit(self, timeout: float | None = None) -> bool:
        """Block until the process has ended, at most `timeout` seconds; return whether it has."""
        if self.death is None or self._closed:
            return self._wait_without_pidfd(timeout)
        poller = select.poll()
        poller.register(self.death, select.POLLIN)
        if not poller.poll(None if timeout is None else max(0.0, timeout) * 1e3):
            return False
        self._popen.wait()
        return True

    def _wait_without_pidfd(self, timeout: float | None) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        return not self.is_alive()

    def terminate(self) -> None:
        """Send SIGTERM. A process that has ended gets nothing."""
        self._popen.terminate()

    def send_kill(self) -> None:
        """Send SIGKILL, and do not wait. A process that has ended gets nothing."""
        self._popen.kill()

    def kill(self) -> bool:
        """Send SIGKILL and reap; return whether the process is gone (within 5 s)."""
        self.send_kill()
        return self.wait_exit(_KILL_GRACE_S)

    def close(self) -> None:
        """Let go of all descriptors of a process that has ended. Safe to call again.

        Raises `RuntimeError` while it runs.
        """
        if self.is_alive():
            raise RuntimeError(f"{self!r} still runs: stop it first")
        if self._closed:
            return
        self._closed = True
        _all.discard(self)
        self._close_ends()
        self._printed.finish(_PRINTED_GRACE_S)
        self._printed.close()
        self._let_go()

    def _close_ends(self) -> None:
        """Close what a subclass has at this end."""

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies, so that it keeps no worker alive."""
        self._closed = True
        self._printed.leave_to_parent()
        self._let_go()


def exit_words(code: int | None) -> str:
    """Say how a process ended: `code` is its exit status, or the negative number of a signal."""
    if code is None:
        return "running"
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _close_all(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)


_all: weakref.WeakSet[Child] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for child in list(_all):
        child.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
