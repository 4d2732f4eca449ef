"""`Crew`: the worker processes of one executor, each with the thread that sends and the pump."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from omni_platforms.engine.messages import Setup, Started, Stop
from omni_platforms.engine.process import WorkerProcess, stop_all
from omni_platforms.engine.pump import Receiver, ResultPump
from omni_platforms.engine.sender import Sender
from omni_platforms.errors import (
    ArenaClosedError,
    ChannelClosedError,
    EngineError,
    ResultPumpError,
    WorkerDiedError,
    WorkerSurvivedError,
)

_EXIT_SEEN_S = 1.0  # a closed channel is seen before the exit of its process
_JOIN_S = 5.0

Failed = Callable[[BaseException], None]


def start_processes(
    setups: Sequence[Setup],
    platform: str | None,
    environment: Mapping[str, str] | None,
    timeout: float | None,
) -> tuple[list[WorkerProcess], list[Started]]:
    """Start all workers at once, and block until every one is up.

    Raises `WorkerStartError` as soon as one is not, when all are gone again.
    """
    processes: list[WorkerProcess] = []
    try:
        for setup in setups:
            processes.append(WorkerProcess(setup, platform, environment))
        return processes, _wait_started(processes, timeout)
    except BaseException:
        for process in processes:
            process.kill()
            process.close()
        raise


def _wait_started(processes: Sequence[WorkerProcess], timeout: float | None) -> list[Started]:
    with concurrent.futures.ThreadPoolExecutor(len(processes), "omni-start") as threads:
        waits = [threads.submit(process.wait_started, timeout) for process in processes]
        try:
            for wait in concurrent.futures.as_completed(waits):
                wait.result()
        except BaseException:
            for process in processes:
                process.kill()  # ends the other waits
            raise
    return [wait.result() for wait in waits]


class Crew:
    """Processes that are up.

    `failed(error)` is called, from any thread, for whatever ends a worker before `stop`.
    """

    def __init__(self, processes: Sequence[WorkerProcess], failed: Failed) -> None:
        self.processes = processes
        self._failed = failed
        self._stopping = False
        self.senders = [
            Sender(process.channel, str(rank), self._sender_failed)
            for rank, process in enumerate(processes)
        ]
        self.pumps: list[ResultPump] = []

    def start(self, receiver: Receiver) -> None:
        """Begin to receive."""
        for rank, process in enumerate(self.processes):
            assert process.view is not None  # it is up
            ended = self._ended_callback(rank)
            pump = ResultPump(rank, process.channel, process.view, receiver, ended)
            self.pumps.append(pump)
        for pump in self.pumps:
            pump.start()

    def is_pump_here(self) -> bool:
        """Whether the calling thread is one of the pumps."""
        return threading.current_thread() in [pump.thread for pump in self.pumps]

    def refresh_views(self) -> None:
        """Unmap what the workers have given back. Does not block."""
        for process in self.processes:
            if process.view is not None:
                with contextlib.suppress(ArenaClosedError):  # with all that it had mapped
                    process.view.refresh()

    def dead_threads(self) -> list[str]:
        """Return the names of the threads that should run and do not."""
        threads = [pump.thread for pump in self.pumps] + [s.thread for s in self.senders]
        return [thread.name for thread in threads if not thread.is_alive()]

    # The end of a worker --------------------------------------------------------

    def _ended_callback(self, rank: int) -> Failed:
        return lambda cause: self._pump_ended(rank, cause)

    def _pump_ended(self, rank: int, cause: BaseException) -> None:
        """Report why a pump ended. All that the worker had sent was handled before."""
        last_word = self.pumps[rank].last_word
        orderly = last_word is not None and last_word.error is None
        if not (self._stopping and (orderly or isinstance(cause, ChannelClosedError))):
            self._failed(self._explained(rank, cause))

    def _explained(self, rank: int, cause: BaseException) -> BaseException:
        process, last_word = self.processes[rank], self.pumps[rank].last_word
        if not isinstance(cause, ChannelClosedError):
            if isinstance(cause, EngineError):
                return cause
            error: EngineError = ResultPumpError(f"the pump of {process.name} failed: {cause!r}")
            error.__cause__ = cause
            return error
        process.wait_exit(_EXIT_SEEN_S)
        how = process.state()
        how = f"closed its channel ({how})" if process.is_alive() else f"ended: {how}"
        original = None
        if last_word is not None and last_word.error is not None:
            original = last_word.error.restore()
            how += f", after {last_word.error.type}: {last_word.error.text}"
        error = WorkerDiedError(
            f"{process.name} (pid {process.pid}) {how}.{process.printed_note()}"
        )
        error.__cause__ = original
        return error

    def _sender_failed(self, cause: BaseException) -> None:
        error = ResultPumpError(f"the thread that sends to a worker failed: {cause!r}")
        error.__cause__ = cause
        self._failed(error)

    # The end of all -------------------------------------------------------------

    def stop(self, timeout: float, grace: float) -> None:
        """End all processes, and let go of everything.

        They get `timeout` seconds to finish what they have, `grace` more behind SIGTERM; then
        they are killed. Raises `WorkerSurvivedError` when one cannot be: try again.
        """
        self._stopping = True
        for sender in self.senders:
            sender.put(Stop(timeout))  # behind everything that was asked
            sender.close()
        survivors = stop_all(self.processes, timeout, grace, ask=False)
        deadline = time.monotonic() + _JOIN_S
        for process in self.processes:
            if process not in survivors:
                self._let_go(process, deadline)
        if survivors:
            names = ", ".join(f"{process.name} (pid {process.pid})" for process in survivors)
            raise WorkerSurvivedError(
                f"{names} did not end on SIGKILL: a device driver may hold it. "
                "Call shutdown() again later, or restart the machine."
            )

    def _let_go(self, process: WorkerProcess, deadline: float) -> None:
        rank = self.processes.index(process)
        here = threading.current_thread()
        for thread in {self.pumps[rank].thread, self.senders[rank].thread} - {here}:
            thread.join(max(0.0, deadline - time.monotonic()))
        process.close()
