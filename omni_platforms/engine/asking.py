"""`Asking`: what callers may do with a board: submit, wait, drop, call. From any thread."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omni_platforms.engine.board import Board, Link
from omni_platforms.engine.future import EngineFuture, carry_out
from omni_platforms.engine.ledger_records import Effects, Future, Outcome
from omni_platforms.engine.messages import DESCRIBE, Call, Execute, ExecuteBatch
from omni_platforms.engine.payload import Pickled
from omni_platforms.engine.pending_state import PendingState
from omni_platforms.engine.previews import Previews
from omni_platforms.errors import (
    ExecutorForkedError,
    OmniError,
    OutputTimeoutError,
    UnknownOutputError,
    WaitInCallbackError,
    WorkerDiedError,
)

_SETTING = "OMNI_ASYNC_OUTPUT_TIMEOUT"
_ASK_S = 1.0


class Asking:
    """The callers' side of one executor.

    `output_timeout` is how many seconds an output is waited for where nobody says otherwise.
    """

    def __init__(
        self,
        links: Mapping[int, Link],
        *,
        window: int,
        lockstep: bool,
        output_rank: int,
        output_timeout: float,
        retries: int = 0,
    ) -> None:
        self._output_timeout = output_timeout
        self._numbers = itertools.count(1)
        self._process = os.getpid()
        self.is_pump_here: Callable[[], bool] = lambda: False
        """Whether the calling thread is one that receives from a worker."""
        self.future_type: Callable[..., EngineFuture] = EngineFuture
        """What makes the futures; observers give it another one."""
        self.board = Board(links, window, lockstep, output_rank, self._output_future, retries)

    # Requests -----------------------------------------------------------------

    def submit(self, request: Any, *, stepwise: bool = False, previews: int = 0) -> EngineFuture:
        """Queue one request; return the future of its COMPUTE_DONE. Does not block."""
        self.check_process()
        pickled = Pickled.of(request)
        message = Execute(f"r{next(self._numbers)}", pickled, stepwise, previews)
        return self._enter(message, Previews() if previews else None)

    def submit_batch(self, requests: Mapping[str, Any]) -> EngineFuture:
        """Queue several requests as one forward; their outputs are `{batch_id}/{request_id}`."""
        self.check_process()
        for request_id in requests:
            if not isinstance(request_id, str):
                raise TypeError(f"a request's id is a text, and not {request_id!r}")
        pickled = {name: Pickled.of(request) for name, request in requests.items()}
        return self._enter(ExecuteBatch(f"b{next(self._numbers)}", pickled), None)

    def _enter(self, message: Execute | ExecuteBatch, previews: Previews | None) -> EngineFuture:
        future = self.future_type(message.id, self)
        future.previews = previews
        with self.board.changed:
            self.board.enter(message, future, previews)
        return future

    # Outputs ------------------------------------------------------------------

    def wait(self, output_id: str) -> EngineFuture:
        """Return the future of an output. Raises as `Ledger.wait`."""
        self.check_process()
        with self.board.changed:
            future, effects = self.board.ledger.wait(output_id)
        carry_out(effects)
        assert isinstance(future, EngineFuture)
        return future

    def drop(self, any_id: str) -> Future | None:
        """Give up an output; return the future of the acknowledgement. Raises as `Ledger.drop`."""
        self.check_process()
        with self.board.changed:
            effects = self.board.drop(any_id)
            self.board.changed.notify_all()
        carry_out(effects)
        return effects.acknowledged

    def give_up(self, any_id: str) -> None:
        """Drop what a cancelled future stood for; it may be gone already."""
        try:
            self.drop(any_id)
        except (UnknownOutputError, ExecutorForkedError):
            return

    # Calls --------------------------------------------------------------------

    def call(
        self,
        method: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        ranks: Sequence[int] | None = None,
        drain: float | None = None,
    ) -> tuple[str, Future]:
        """Queue a call; return its id, and the future of the list of the ranks' pickled answers."""
        self.check_process()
        arguments = Pickled.of((tuple(args), dict(kwargs or {})))
        call = Call(f"c{next(self._numbers)}", method, arguments, drain)
        future = Future()
        with self.board.changed:
            if self.board.failure is not None:
                self.board.check_open()
            chosen = self.board.ranks() if ranks is None else ranks
            self.board.calls.open(call.id, chosen, future)
            effects = Effects()
            for rank in chosen:
                link = self.board.links.get(rank)
                if link is None:
                    gone = Outcome(error=WorkerDiedError(f"worker {rank} is gone"))
                    effects.add(self.board.calls.reply(rank, call.id, gone))
                else:
                    link.put(call)
        carry_out(effects)
        return call.id, future

    def ranks(self) -> list[int]:
        """Return the ranks of the workers that are to stay."""
        with self.board.changed:
            return self.board.ranks()

    def give_up_call(self, call_id: str) -> set[int]:
        """Forget a call that timed out; return the ranks that have not answered."""
        with self.board.changed:
            return self.board.calls.give_up(call_id)

    # State --------------------------------------------------------------------

    def check_process(self) -> None:
        """Raise `ExecutorForkedError` in a forked child."""
        if os.getpid() != self._process:
            raise ExecutorForkedError(
                "this executor belongs to the parent of this forked process: make one here"
            )

    def check_may_wait(self) -> None:
        """Raise `ExecutorForkedError`, and `WaitInCallbackError` on a thread that receives."""
        self.check_process()
        if self.is_pump_here():
            raise WaitInCallbackError(
                "a future's callback waits for another output, which its own thread would have to "
                "receive: hand the work to another thread"
            )

    def describe(self, workers: Mapping[int, Any] | None = None) -> PendingState:
        """Return what is in hand at this moment. Does not block."""
        self.check_process()
        board = self.board
        with board.changed:
            queued, at_workers = board.dispatcher.load()
            return PendingState(
                outputs=list(board.ledger.describe()),
                queued=queued,
                at_workers=at_workers,
                calls=board.calls.describe(),
                unacknowledged=board.ledger.unacknowledged(),
                late=board.late + board.ledger.late + board.calls.late,
                failure=None if board.failure is None else str(board.failure),
                workers=workers or {},
            )

    def ask_workers(self, timeout: float) -> dict[int, Any]:
        """Return what each worker says about its outputs. Blocks at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self.board.changed:
            ranks = sorted(self.board.links)
        calls = [(rank, *self.call(DESCRIBE, ranks=[rank])) for rank in ranks]
        said: dict[int, Any] = {}
        for rank, call_id, future in calls:
            try:
                answers = future.result(max(0.0, deadline - time.monotonic()))
                said[rank] = answers[0].load()
            except (concurrent.futures.TimeoutError, OmniError) as error:
                self.give_up_call(call_id)
                said[rank] = f"no answer within {timeout} s ({type(error).__name__})"
        return said

    def timeout_error(self, output_id: str, waited: float, setting: bool) -> OutputTimeoutError:
        """Return the error for an output that did not come: its stage, and the bookkeeping.

        Workers are asked for theirs: blocks for a second at most.
        """
        ended = self.board.failure is not None
        state = self.describe({} if ended else self.ask_workers(_ASK_S))
        stages = [output.stage.value for output in state.outputs if output.id == output_id]
        where = stages[0] if stages else "settled this moment"
        more = f" Set {_SETTING} to a larger number of seconds to wait longer." if setting else ""
        return OutputTimeoutError(
            f"output {output_id!r} did not come within {waited} s; it is {where}.{more}\n{state}"
        )

    def _output_future(self, output_id: str) -> EngineFuture:
        return self.future_type(output_id, self, self._output_timeout)
