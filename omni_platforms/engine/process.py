"""`WorkerProcess`: a worker on this host, with its channel and the view of its arena."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from omni_platforms import settings
from omni_platforms.engine import spawning
from omni_platforms.engine.channel import Channel
from omni_platforms.engine.child import Child
from omni_platforms.engine.messages import Message, Setup, Started, Stop
from omni_platforms.errors import (
    ChannelBrokenError,
    ChannelClosedError,
    CorruptMessageError,
    WorkerStartError,
)
from omni_platforms.shm import ArenaView

START_TIMEOUT = "OMNI_WORKER_START_TIMEOUT"
_TERM_GRACE_S = 2.0
_KILL_GRACE_S = 5.0


class WorkerProcess(Child):
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
        self.view: ArenaView | None = None
        """The consumer's side of its arena, once it is up."""
        self._started_at = time.monotonic()
        with contextlib.ExitStack() as undo:
            ours, theirs = spawning.sockets(undo)
            self._arena_socket, their_arena_socket = spawning.sockets(undo)
            ends = [theirs.fileno(), their_arena_socket.fileno()]
            variables = spawning.environment(platform, environment)
            super().__init__(f"worker {setup.rank}", ends, variables)
            undo.pop_all()
        for end in (theirs, their_arena_socket):
            end.close()
        self.channel = Channel(ours, self.death)
        self._send_aside(setup)

    # The start ----------------------------------------------------------------

    def wait_started(self, timeout: float | None = None) -> Started:
        """Block until the worker is up, and return what it says about itself.

        It may take `timeout` seconds from its start (`OMNI_WORKER_START_TIMEOUT` when
        `None`); that it died is noticed at once. Raises `WorkerStartError`, with what it
        printed last, after the process is gone and everything of it released.
        """
        limit = settings.read(START_TIMEOUT) if timeout is None else timeout
        try:
            started = receive_started(self, self._started_at + limit, limit)
            self.view = ArenaView.connect(self._arena_socket)
            self._arena_socket.close()  # the view has its own copy
            return started
        except BaseException:
            self.kill()
            self.close()
            raise

    def _send_aside(self, message: Message) -> threading.Thread:
        """Send from a thread: a worker that does not read must not block its parent."""

        def send() -> None:
            with contextlib.suppress(ChannelClosedError):  # its death is seen elsewhere
                self.channel.send(message)

        sender = threading.Thread(target=send, name=f"omni-to-{self.name}", daemon=True)
        sender.start()
        return sender

    # Its end ------------------------------------------------------------------

    def ask_to_stop(self, timeout: float) -> None:
        """Let it deliver what is queued within `timeout` seconds, and exit. Does not block."""
        if self.is_alive():
            self._send_aside(Stop(timeout))

    def _close_ends(self) -> None:
        """Close the channel and the view. Results that were unpacked stay valid."""
        self.channel.close()
        self._arena_socket.close()
        if self.view is not None:
            self.view.close()

    def leave_to_parent(self) -> None:
        """In a forked child: close its copies, so that it keeps no worker alive."""
        self.channel.leave_to_parent()
        if self._arena_socket.fileno() >= 0:
            os.close(self._arena_socket.detach())
        super().leave_to_parent()


class Starting(Protocol):
    """A worker that is coming up, wherever it runs."""

    setup: Setup
    name: str

    @property
    def channel(self) -> Channel:
        """What is said to it and by it."""

    @property
    def pid(self) -> int:
        """The process's number."""

    def state(self) -> str:
        """Return in words whether it runs or how it ended."""

    def wait_exit(self, timeout: float | None = None) -> bool:
        """Block until the process has ended; return whether it has."""

    def printed_note(self) -> str:
        """Return the last lines that it printed as the end of a message, or nothing."""


def receive_started(worker: Starting, deadline: float, limit: float) -> Started:
    """Receive a worker's first message until `deadline`, `limit` seconds after its start.

    Raises `WorkerStartError` when it did not come up, died or says that it failed.
    """
    try:
        message = worker.channel.receive(max(0.0, deadline - time.monotonic()))
    except TimeoutError as error:
        raise start_error(
            worker, f"was not up after {limit} s. Give it more time with {START_TIMEOUT}"
        ) from error
    except ChannelClosedError as error:
        worker.wait_exit(_KILL_GRACE_S)
        raise start_error(worker, f"died while it started: {worker.state()}") from error
    except (ChannelBrokenError, CorruptMessageError) as error:
        raise start_error(worker, f"did not say that it is up: {error}") from error
    if not isinstance(message, Started):
        raise start_error(worker, f"said {type(message).__name__} before it was up")
    if message.error is not None:
        original = message.error.restore()
        worker.wait_exit(_KILL_GRACE_S)  # it ends now, and what it printed is all there
        raise start_error(worker, f"failed to start: {original}") from original
    return message


def start_error(worker: Starting, what: str) -> WorkerStartError:
    """Return the error of a worker that did not come up."""
    return WorkerStartError(
        f"{worker.name} ({worker.setup.worker}, pid {worker.pid}) {what}.{worker.printed_note()}"
    )


class Endable(Protocol):
    """A worker that can be ended, wherever it runs."""

    def is_alive(self) -> bool:
        """Whether it runs."""

    def wait_exit(self, timeout: float | None = None) -> bool:
        """Block until it has ended; return whether it has."""

    def ask_to_stop(self, timeout: float) -> None:
        """Let it deliver what is queued, and exit."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def send_kill(self) -> None:
        """Send SIGKILL, and do not wait."""


W = TypeVar("W", bound=Endable)


def stop_all(
    workers: Iterable[W], timeout: float, grace: float = _TERM_GRACE_S, *, ask: bool = True
) -> list[W]:
    """End workers: an orderly stop, then SIGTERM, then SIGKILL; return those that survive that.

    `ask` is false where somebody has sent `Stop` already, in its place among other messages.

    All at once: blocks at most about `timeout + grace + 5` seconds, however many they
    are. Somebody must go on to receive from their channels meanwhile. Only processes of this
    list get a signal. Those that ended are reaped; `close` them. Safe to call again.
    """
    left = [worker for worker in workers if worker.is_alive()]
    for worker in left if ask else ():
        worker.ask_to_stop(timeout)
    left = _still_alive(left, timeout)
    for worker in left:
        worker.terminate()
    left = _still_alive(left, grace)
    for worker in left:
        worker.send_kill()
    return _still_alive(left, _KILL_GRACE_S)


def _still_alive(workers: Sequence[W], timeout: float) -> list[W]:
    deadline = time.monotonic() + timeout
    return [w for w in workers if not w.wait_exit(max(0.0, deadline - time.monotonic()))]
