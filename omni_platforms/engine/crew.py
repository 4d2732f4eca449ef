"""`Crew`: the workers of one executor by rank, each with the thread that sends and the pump.

A worker is a process of this host (`process.py`) or of another one (`ray/worker.py`): whatever
has a channel and a view, and can be ended.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from omni_platforms.engine.channel import Channel
from omni_platforms.engine.messages import Setup, Started, Stop
from omni_platforms.engine.process import Endable, WorkerProcess, stop_all
from omni_platforms.engine.pump import FarView, Receiver, ResultPump, View
from omni_platforms.engine.sender import Sender
from omni_platforms.errors import (
    ArenaClosedError,
    ChannelClosedError,
    EngineError,
    ResultPumpError,
    WorkerDiedError,
    WorkerSurvivedError,
)
from omni_platforms.events import log_event

logger = logging.getLogger(__name__)

_JOIN_S = 5.0

Failed = Callable[[BaseException], None]
Lost = Callable[[int, BaseException], None]


class Worker(Endable, Protocol):
    """A worker that is up."""

    name: str
    exit_seen_s: float
    """How long its end may take to be known, when its channel is closed already."""

    @property
    def channel(self) -> Channel:
        """What is said to it and by it."""

    @property
    def view(self) -> View | FarView | None:
        """The consumer's side of its outputs; not `None` once it is up."""

    @property
    def pid(self) -> int:
        """The process's number, on its host."""

    def state(self) -> str:
        """Return in words whether it runs or how it ended."""

    def printed_note(self) -> str:
        """Return the last lines that it printed as the end of a message, or nothing."""

    def kill(self) -> bool:
        """Send SIGKILL and reap; return whether it is gone."""

    def close(self) -> None:
        """Let go of what is at this end, once it has ended."""


class StartingWorker(Worker, Protocol):
    """A worker that is coming up."""

    def wait_started(self, timeout: float | None = None) -> Started:
        """Block until it is up. Raises `WorkerStartError` when everything of it is released."""


W = TypeVar("W", bound=StartingWorker)


def start_processes(
    setups: Sequence[Setup],
    platform: str | None,
    environment: Mapping[str, str] | None,
    timeout: float | None,
) -> tuple[list[WorkerProcess], list[Started]]:
    """Start all workers at once, and block until every one is up.

    Raises `WorkerStartError` as soon as one is not, when all are gone again.
    """
    makers = [functools.partial(WorkerProcess, s, platform, environment) for s in setups]
    return start_all(makers, timeout)


def start_all(
    makers: Sequence[Callable[[], W]], timeout: float | None
) -> tuple[list[W], list[Started]]:
    """Make workers, which start all at once, and block until every one is up.

    Raises what a maker raises, and `WorkerStartError` as soon as one is not, when all are gone
    again.
    """
    workers: list[W] = []
    try:
        for make in makers:
            workers.append(make())
        return workers, _wait_started(workers, timeout)
    except BaseException:
        for worker in workers:
            worker.kill()
            worker.close()
        raise


def _wait_started(workers: Sequence[W], timeout: float | None) -> list[Started]:
    with concurrent.futures.ThreadPoolExecutor(len(workers), "omni-start") as threads:
        waits = [threads.submit(worker.wait_started, timeout) for worker in workers]
        try:
            for wait in concurrent.futures.as_completed(waits):
                wait.result()
        except BaseException:
            for worker in workers:
                worker.kill()  # ends the other waits
            raise
    started = [wait.result() for wait in waits]
    for worker, said in zip(workers, started, strict=True):
        log_event(
            logger,
            "worker_started",
            name=worker.name,
            pid=worker.pid,
            platform=said.platform,
            device=said.device,
            registered=said.registered,
        )
    return started


class Crew:
    """Workers that are up.

    `failed(error)` is called, from any thread, for what ends the executor; `lost(rank, error)` on
    a pump's thread for whatever ends one worker before it was to stop.
    """

    def __init__(self, workers: Sequence[Worker], failed: Failed, lost: Lost) -> None:
        self._failed = failed
        self._lost = lost
        self._stopping: set[int] = set()
        self.workers: dict[int, Worker] = {}
        self.senders: dict[int, Sender] = {}
        self.pumps: dict[int, ResultPump] = {}
        self._receiving: set[threading.Thread] = set()
        """The threads of the pumps: whoever waits for an output looks whether it is one."""
        for rank, worker in enumerate(workers):
            self.enlist(rank, worker)

    def enlist(self, rank: int, worker: Worker) -> Sender:
        """Take a worker that is up; nothing is received from it before `start`."""
        self.workers[rank] = worker
        sender = Sender(worker.channel, str(rank), self._sender_failed)
        self.senders[rank] = sender
        return sender

    def start(self, rank: int, receiver: Receiver) -> None:
        """Begin to receive from a worker."""
        worker = self.workers[rank]
        assert worker.view is not None  # it is up
        pump = ResultPump(
            rank, worker.channel, worker.view, receiver, lambda cause: self._pump_ended(rank, cause)
        )
        self.pumps[rank] = pump
        self._receiving.add(pump.thread)
        pump.start()

    def is_pump_here(self) -> bool:
        """Whether the calling thread is one of the pumps."""
        return threading.current_thread() in self._receiving

    def refresh_views(self) -> None:
        """Unmap what the workers have given back. Does not block."""
        for process in list(self.workers.values()):
            if process.view is not None:
                with contextlib.suppress(ArenaClosedError):  # with all that it had mapped
                    process.view.refresh()

    def dead_threads(self) -> list[str]:
        """Return the names of the threads that should run and do not."""
        threads = [(rank, pump.thread) for rank, pump in list(self.pumps.items())]
        threads += [(rank, sender.thread) for rank, sender in list(self.senders.items())]
        meant_to_run = [thread for rank, thread in threads if rank not in self._stopping]
        return [thread.name for thread in meant_to_run if not thread.is_alive()]

    def are_alive(self) -> bool:
        """Whether all processes run, but for those that are being stopped."""
        workers = list(self.workers.items())
        return all(worker.is_alive() for rank, worker in workers if rank not in self._stopping)

    # The end of a worker --------------------------------------------------------

    def _pump_ended(self, rank: int, cause: BaseException) -> None:
        """Report why a pump ended. All that the worker had sent was handled before."""
        last_word = self.pumps[rank].last_word
        orderly = last_word is not None and last_word.error is None
        stopping = rank in self._stopping
        if not (stopping and (orderly or isinstance(cause, ChannelClosedError))):
            self._lost(rank, self._explained(rank, cause))

    def _explained(self, rank: int, cause: BaseException) -> BaseException:
        worker, last_word = self.workers[rank], self.pumps[rank].last_word
        if not isinstance(cause, ChannelClosedError):
            if isinstance(cause, EngineError):
                return cause
            error: EngineError = ResultPumpError(f"the pump of {worker.name} failed: {cause!r}")
            error.__cause__ = cause
            return error
        worker.wait_exit(worker.exit_seen_s)
        how = worker.state()
        how = f"closed its channel ({how})" if worker.is_alive() else f"ended: {how}"
        original = None
        if last_word is not None and last_word.error is not None:
            original = last_word.error.restore()
            how += f", after {last_word.error.type}: {last_word.error.text}"
        error = WorkerDiedError(f"{worker.name} (pid {worker.pid}) {how}.{worker.printed_note()}")
        error.__cause__ = original
        return error

    def _sender_failed(self, cause: BaseException) -> None:
        error = ResultPumpError(f"the thread that sends to a worker failed: {cause!r}")
        error.__cause__ = cause
        self._failed(error)

    # The end of some or all -----------------------------------------------------

    def stop(self, timeout: float, grace: float, ranks: Sequence[int] | None = None) -> None:
        """End the workers of `ranks`, or all, and let go of everything of theirs.

        They get `timeout` seconds to finish what they have, `grace` more behind SIGTERM; then
        they are killed. Raises `WorkerSurvivedError` when one cannot be: try again.
        """
        chosen = {rank: self.workers[rank] for rank in (self.workers if ranks is None else ranks)}
        self._stopping.update(chosen)
        for rank in chosen:
            self.senders[rank].put(Stop(timeout))  # behind everything that was asked
            self.senders[rank].close()
        survivors = stop_all(chosen.values(), timeout, grace, ask=False)
        deadline = time.monotonic() + _JOIN_S
        for rank, worker in chosen.items():
            if worker not in survivors:
                self._let_go(rank, worker, deadline)
        if survivors:
            names = ", ".join(f"{worker.name} (pid {worker.pid})" for worker in survivors)
            raise WorkerSurvivedError(
                f"{names} did not end on SIGKILL: a device driver may hold it. "
                "Call shutdown() again later, or restart the machine."
            )

    def _let_go(self, rank: int, worker: Worker, deadline: float) -> None:
        here = threading.current_thread()
        pump = self.pumps.get(rank)  # none where the executor ended before it began
        threads = {self.senders[rank].thread} | ({pump.thread} if pump is not None else set())
        for thread in threads - {here}:
            thread.join(max(0.0, deadline - time.monotonic()))
        worker.close()
        log_event(logger, "worker_ended", rank=rank, pid=worker.pid, how=worker.state())

    def expect_end(self, rank: int) -> None:
        """Take the end of a worker from now on as what was wanted."""
        self._stopping.add(rank)

    def forget(self, rank: int) -> None:
        """Remove a worker that was stopped."""
        self.workers.pop(rank, None)
        self.senders.pop(rank, None)
        pump = self.pumps.pop(rank, None)
        if pump is not None:
            self._receiving.discard(pump.thread)
        self._stopping.discard(rank)
