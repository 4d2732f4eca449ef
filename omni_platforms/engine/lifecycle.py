"""`Engine`: one executor from its start to its end, whoever ends it.

It ends in one of three ways: `shutdown` (what was accepted is delivered first), a failure (a
worker dies, a channel breaks, a rank is out of step), or the exit of this process. After each
nothing pends, and no process, thread, descriptor or mapping is left.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omni_platforms import observers
from omni_platforms.engine.asking import Asking
from omni_platforms.engine.crew import Crew, Worker
from omni_platforms.engine.messages import Started
from omni_platforms.engine.replies import Replies
from omni_platforms.engine.stats import EngineStats, Mode, WorkerStats
from omni_platforms.errors import ExecutorClosedError, ResultPumpError
from omni_platforms.events import log_event

logger = logging.getLogger(__name__)

_TERM_GRACE_S = 2.0
_FAILURE_STOP_S = 0.5  # for workers whose results nobody gets any more
_EXIT_STOP_S = 0.5

OnFailure = Callable[[BaseException], object]


class Engine:
    """Bookkeeping and processes, without the public interface. Any thread may call it.

    `after_end` is what is to be let go once all workers have ended, in order.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        started: Sequence[Started] = (),
        *,
        window: int,
        lockstep: bool,
        output_rank: int,
        output_timeout: float,
        retries: int = 0,
        after_end: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.started: Mapping[int, Started] = dict(enumerate(started))
        self.crew = Crew(workers, self.fail, self.lose)
        self.asking = Asking(
            self.crew.senders,
            window=window,
            lockstep=lockstep,
            output_rank=output_rank,
            output_timeout=output_timeout,
            retries=retries,
        )
        self.asking.is_pump_here = self.crew.is_pump_here
        self.replies = Replies(self.asking.board, output_timeout, self.fail)
        self._callbacks: list[OnFailure] = []
        self._process = os.getpid()
        self._ending = threading.RLock()
        self._ended = False
        self._after_end = after_end
        _live.add(self)
        for rank in self.crew.workers:
            self.crew.start(rank, self.replies)
        observers.announce("engine", self)
        mode = "lockstep" if lockstep else "data_parallel"
        log_event(logger, "engine_started", workers=len(workers), mode=mode, window=window)

    # A failure ------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the executor with a cause: whatever pends fails, and the workers are stopped."""
        if os.getpid() != self._process or not self.asking.board.fail(error):
            return
        log_event(logger, "engine_failed", logging.ERROR, type=type(error).__name__, cause=error)
        thread = threading.Thread(
            target=self._end_after_failure, args=(error,), name="omni-end", daemon=True
        )
        thread.start()

    def _end_after_failure(self, error: BaseException) -> None:
        with self.asking.board.changed:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _call(callback, error)
        self._end(_FAILURE_STOP_S)

    def lose(self, rank: int, error: BaseException) -> None:
        """A worker has ended before it was to stop: that ends this executor."""
        self.fail(error)

    def on_failure(self, callback: OnFailure) -> None:
        """Have `callback(cause)` called, once, when a failure ends the executor, or ended it."""
        with self.asking.board.changed:
            failure = self.asking.board.failure
            if failure is None:
                self._callbacks.append(callback)
                return
        if not isinstance(failure, ExecutorClosedError):  # which a shutdown leaves
            _call(callback, failure)

    def is_healthy(self) -> bool:
        """Whether requests are served. Also finds threads and processes that died in silence."""
        board = self.asking.board
        if os.getpid() != self._process:
            return False  # a forked child has neither threads nor workers
        if board.failure is not None or board.closing is not None:
            return False
        dead = self.crew.dead_threads()
        if dead and board.failure is None:
            self.fail(ResultPumpError(f"the threads {dead} have died without a word"))
        return not dead and self.crew.are_alive()

    # State ----------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """Return counts since the executor was made, and what each worker has. Does not block."""
        board, ledger = self.asking.board, self.asking.board.ledger
        with board.changed:
            queued, _ = board.dispatcher.load()
            loads = board.dispatcher.loads()
            counts: dict[str, Any] = {
                "state": board.state(),
                "submitted": ledger.submitted,
                "computed": ledger.computed,
                "failed_requests": ledger.failed_requests,
                **ledger.fates(),
                "pending": ledger.counts()["outputs"],
                "queued": queued,
                "calls": len(board.calls),
                "late": board.late + ledger.late + board.calls.late,
            }
        mode: Mode = "lockstep" if board.lockstep else "data_parallel"
        return EngineStats(mode=mode, workers=self._worker_stats(loads), **counts)

    def _totals(self) -> dict[str, int]:
        ledger = self.asking.board.ledger
        return {"submitted": ledger.submitted, "computed": ledger.computed, **ledger.fates()}

    def _worker_stats(self, loads: Mapping[int, int]) -> list[WorkerStats]:
        """Return what is known of each worker that is there."""
        told = []
        for rank, worker in list(self.crew.workers.items()):
            started, view = self.started.get(rank), worker.view
            told.append(
                WorkerStats(
                    rank=rank,
                    pid=worker.pid,
                    platform="" if started is None else started.platform,
                    device="" if started is None else started.device,
                    alive=worker.is_alive(),
                    requests=loads.get(rank, 0),
                    outputs=0 if view is None else view.unpacked_count,
                    bytes_received=0 if view is None else view.unpacked_bytes,
                )
            )
        return told

    # The end --------------------------------------------------------------------

    def shutdown(self, timeout: float) -> None:
        """Deliver what was accepted, at most `timeout` seconds; then end. Again: does nothing.

        On a pump's thread, that is in a future's callback, it delivers nothing more.
        """
        if os.getpid() != self._process:
            return
        deadline = time.monotonic() + (0.0 if self.crew.is_pump_here() else timeout)
        board = self.asking.board
        with board.changed:
            board.closing = board.closing or "the executor was shut down"
        board.wait_for(board.is_idle, deadline - time.monotonic())
        self._end(max(0.0, deadline - time.monotonic()))

    def _end(self, timeout: float) -> None:
        with self._ending:
            if self._ended:
                return
            board = self.asking.board
            try:
                self.crew.stop(timeout, _TERM_GRACE_S)
            finally:
                self.replies.close()
                board.fail(ExecutorClosedError(f"{board.closing} before this was done"))
            for step in self._after_end:
                step()
            self._ended = True
            _live.discard(self)
            log_event(logger, "engine_ended", **self._totals())

    def abandon(self) -> None:
        """End without waiting: nobody holds the executor any more."""
        if os.getpid() == self._process and not self._ended:
            threading.Thread(target=self.shutdown, args=(0.0,), name="omni-end").start()

    def end_at_exit(self) -> None:
        """End at the exit of this process, in which nobody waits for results any more."""
        if os.getpid() != self._process:
            return
        with self.asking.board.changed:
            self.asking.board.closing = "this process ends"
        self._end(_EXIT_STOP_S)


def _call(callback: OnFailure, error: BaseException) -> None:
    try:
        callback(error)
    except Exception:
        logger.exception("a callback of on_failure failed")


_live: set[Engine] = set()


@atexit.register
def end_all_at_exit() -> None:
    """End every executor of this process. Again: does nothing."""
    for engine in list(_live):
        engine.end_at_exit()
