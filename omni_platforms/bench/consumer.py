"""`Consumer`: another process that receives outputs, checks them, and says when it had them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import torch.multiprocessing
from torch import Tensor

from omni_platforms.bench.consuming import Job, Received, Usage, serve
from omni_platforms.errors import BenchError
from omni_platforms.shm import Arena

_ANSWER_TIMEOUT_S = 120.0
_END_TIMEOUT_S = 10.0
Answer = TypeVar("Answer")


class Consumer:
    """A process of its own, started once (spawned, not forked), which stays for all rounds.

    `arena` is connected to it. Use it as a context manager on one thread. Its clock is this
    process's: `perf_counter` reads the system's monotonic clock. Making one blocks until
    the process answers. Every method raises `BenchError` when the process is gone or does
    not answer.
    """

    def __init__(self, arena: Arena) -> None:
        context = torch.multiprocessing.get_context("spawn")
        ours, theirs = socket.socketpair()
        self._channel, their_channel = context.Pipe()
        self._queue = context.Queue()
        self._expects_output = False
        self._process = context.Process(
            target=serve, args=(theirs, their_channel, self._queue), daemon=True
        )
        self._process.start()
        their_channel.close()
        theirs.close()
        with ours:
            arena.connect(ours)
        self.usage()

    def take(self, job: Job, send: Callable[[], float]) -> tuple[float, Received]:
        """Hand one output over: announce the job, `send` it, and return its start and its ends.

        `send` is called when the consumer waits for the output, and returns the time at which the
        clock of this output started. The consumer checks every byte behind its clock:
        raises `BenchError` for a wrong one.
        """
        self._ask(job, str)
        self._expects_output = True  # and so nothing else, until it has answered
        started = send()
        answer = self._answer()
        self._expects_output = False
        if not isinstance(answer, Received):
            raise BenchError(str(answer))
        return started, answer

    def usage(self) -> Usage:
        """Return what the consumer has used so far."""
        return self._ask("usage", Usage)

    def send(self, message: Any) -> None:
        """Send what a job's way expects, over a pipe."""
        try:
            self._channel.send(message)
        except OSError as error:
            raise self._gone() from error

    def put(self, value: Tensor) -> None:
        """Send a host tensor through a queue of `torch.multiprocessing`."""
        self._queue.put(value)

    def close(self) -> None:
        """End the process. A second call is harmless."""
        if self._process.is_alive():
            self._ask_to_end()
            self._process.join(_END_TIMEOUT_S)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._channel.close()
        self._queue.close()

    def _ask_to_end(self) -> None:
        if not self._expects_output:
            try:
                self._channel.send(None)
                return
            except OSError:  # it is ending, or cannot read any more
                pass
        self._process.terminate()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, message: Any, kind: type[Answer]) -> Answer:
        self.send(message)
        answer = self._answer()
        if not isinstance(answer, kind):
            raise BenchError(f"the consumer process answered {answer!r}")
        return answer

    def _answer(self) -> Any:
        try:
            if self._channel.poll(_ANSWER_TIMEOUT_S):
                return self._channel.recv()
        except (EOFError, OSError) as error:
            raise self._gone() from error
        raise BenchError(f"the consumer process has not answered for {_ANSWER_TIMEOUT_S:.0f} s")

    def _gone(self) -> BenchError:
        self._process.join(_END_TIMEOUT_S)
        return BenchError(
            f"the consumer process has ended (exit status {self._process.exitcode}); its last "
            "words are on standard error"
        )
