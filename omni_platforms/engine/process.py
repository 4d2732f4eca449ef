"""`WorkerProcess`: starts a worker, knows how it ended, and ends it in bounded time.

The worker is a fresh interpreter (no fork, no `multiprocessing`): the parent's
main script is not run again and needs no `__main__` guard, and no helper process
stays. It gets this process's `sys.path`, three descriptors and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence

from omni_platforms import settings
from omni_platforms.engine import spawning
from omni_platforms.engine.channel import Channel
from omni_platforms.engine.last_output import LastOutput
from omni_platforms.engine.messages import Message, Setup, Started, Stop
from omni_platforms.errors import (
    ChannelBrokenError,
    ChannelClosedError,
    CorruptMessageError,
    WorkerStartError,
)
from omni_platforms.shm import ArenaView

_START_TIMEOUT = "OMNI_WORKER_START_TIMEOUT"
_TERM_GRACE_S = 2.0
_KILL_GRACE_S = 5.0
_PRINTED_GRACE_S = 1.0  # for what a dead worker had printed to be read


class WorkerProcess:
    """One worker process, its channel, and the view of its arena.

    Making one starts the process and does not wait for it: start several, then
    `wait_started` for each. Afterwards one thread may `receive` from `channel`, any may
    `send`. Whatever happens to this process, the worker does not outlive it.

    Parameters:
        setup: who the worker is.
        platform: the name of its platform; what its environment says when `None`.
        environment: variables that it has besides this process's.
    """

    def __init__(
        self,
        setup: Setup,
        platform: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.setup = setup
        self.name = f"worker {setup.rank}"
        self.view: ArenaView | None = None
        """The consumer's side of its arena, once it is up."""
        self._started_at = time.monotonic()
        with contextlib.ExitStack() as undo:
            ours, theirs = spawning.sockets(undo)
            self._arena_socket, their_arena_socket = spawning.sockets(undo)
            reading, self._lifeline = spawning.pipe(undo)
            printed, printing = spawning.pipe(undo)
            theirs_all = [theirs.fileno(), their_arena_socket.fileno(), reading]
            variables = spawning.environment(platform, environment)
            self._popen = spawning.spawn(theirs_all, printing, variables)
            undo.pop_all()
        for end in (theirs, their_arena_socket):
            end.close()
        os.close(reading)
        os.close(printing)
        self._death = spawning.pidfd(self._popen.pid)
        # Closing the lifeline ends the worker: who lets go of this object lets go of the process.
        self._let_go = weakref.finalize(self, _close_all, self._lifeline, self._death)
        self._let_go.atexit = False
        self.channel = Channel(ours, self._death)
        self._printed = LastOutput(printed, self.name)
        self._closed = False
        _all.add(self)
        self._send_aside(setup)

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.name}, pid {self.pid}: {self.state()}>"

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._popen.pid

    # The start ----------------------------------------------------------------

    def wait_started(self, timeout: float | None = None) -> Started:
        """Block until the worker is up, and return what it says about itself.

        It may take `timeout` seconds from its start (`OMNI_WORKER_START_TIMEOUT` when
        `None`); that it died is noticed at once. Raises `WorkerStartError`, with what it
        printed last, after the process is gone and everything of it released.
        """
        limit = settings.read(_START_TIMEOUT) if timeout is None else timeout
        try:
            started = self._receive_started(limit)
            if started.error is not None:
                error = started.error.restore()
                raise self._start_error(f"failed to start: {error}") from error
            self.view = ArenaView.connect(self._arena_socket)
            self._arena_socket.close()  # the view has its own copy
            return started
        except BaseException:
            self.kill()
            self.close()
            raise

    def _receive_started(self, limit: float) -> Started:
        left = self._started_at + limit - time.monotonic()
        try:
            message = self.channel.receive(max(0.0, left))
        except TimeoutError as error:
            raise self._start_error(
                f"was not up after {limit} s. Give it more time with {_START_TIMEOUT}"
            ) from error
        except ChannelClosedError as error:
            self.wait_exit(_KILL_GRACE_S)
            raise self._start_error(f"died while it started: {self.state()}") from error
        except (ChannelBrokenError, CorruptMessageError) as error:
            raise self._start_error(f"did not say that it is up: {error}") from error
        if not isinstance(message, Started):
            raise self._start_error(f"said {type(message).__name__} before it was up")
        return message

    def _start_error(self, what: str) -> WorkerStartError:
        return WorkerStartError(
            f"{self.name} ({self.setup.worker}, pid {self.pid}) {what}.{self.printed_note()}"
        )

    def _send_aside(self, message: Message) -> threading.Thread:
        """Send from a thread: a worker that does not read must not block its parent."""

        def send() -> None:
            with contextlib.suppress(ChannelClosedError):  # its death is seen elsewhere
                self.channel.send(message)

        sender = threading.Thread(target=send, name=f"omni-to-{self.name}", daemon=True)
        sender.start()
        return sender

    # Its life and its end -----------------------------------------------------

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
        if self._death is None or self._closed:
            return self._wait_without_pidfd(timeout)
        poller = select.poll()
        poller.register(self._death, select.POLLIN)
        if not poller.poll(None if timeout is None else max(0.0, timeout) * 1e3):
            return False
        self._popen.wait()
        return True

    def _wait_without_pidfd(self, timeout: float | None) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        return not self.is_alive()

    def ask_to_stop(self, timeout: float) -> None:
        """Let it deliver what is queued within `timeout` seconds, and exit. Does not block."""
        if self.is_alive():
            self._send_aside(Stop(timeout))

    def terminate(self) -> None:
        """Send SIGTERM. A process that has ended gets nothing."""
        self._popen.terminate()

    def kill(self) -> bool:
        """Send SIGKILL and reap; return whether the process is gone (within 5 s)."""
        self._popen.kill()
        return self.wait_exit(_KILL_GRACE_S)

    def close(self) -> None:
        """Let go of the channel, the view and all descriptors of a process that has ended.

        Results that were unpacked stay valid. Raises `RuntimeError` while it runs.
        """
        if self.is_alive():
            raise RuntimeError(f"{self!r} still runs: stop it first")
        if self._closed:
            return
        self._closed = True
        _all.discard(self)
        self.channel.close()
        self._arena_socket.close()
        if self.view is not None:
            self.view.close()
        self._printed.finish(_PRINTED_GRACE_S)
        self._printed.close()
        self._let_go()

    def _leave_to_parent(self) -> None:
        """In a forked child: close its copies, so that it keeps no worker alive."""
        self._closed = True
        self.channel.leave_to_parent()
        self._printed.leave_to_parent()
        if self._arena_socket.fileno() >= 0:
            os.close(self._arena_socket.detach())
        self._let_go()


def stop_all(
    processes: Iterable[WorkerProcess],
    timeout: float,
    grace: float = _TERM_GRACE_S,
    *,
    ask: bool = True,
) -> list[WorkerProcess]:
    """End processes: an orderly stop, then SIGTERM, then SIGKILL; return those that survive that.

    `ask` is false where somebody has sent `Stop` already, in its place among other messages.

    All at once: blocks at most about `timeout + grace + 5` seconds, however many they
    are. Somebody must go on to receive from their channels meanwhile. Only processes of this
    list get a signal. Those that ended are reaped; `close` them. Safe to call again.
    """
    left = [process for process in processes if process.is_alive()]
    for process in left if ask else ():
        process.ask_to_stop(timeout)
    left = _still_alive(left, timeout)
    for process in left:
        process.terminate()
    left = _still_alive(left, grace)
    for process in left:
        process._popen.kill()
    return _still_alive(left, _KILL_GRACE_S)


def _still_alive(processes: Sequence[WorkerProcess], timeout: float) -> list[WorkerProcess]:
    deadline = time.monotonic() + timeout
    return [p for p in processes if not p.wait_exit(max(0.0, deadline - time.monotonic()))]


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


_all: weakref.WeakSet[WorkerProcess] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for process in list(_all):
        process._leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
