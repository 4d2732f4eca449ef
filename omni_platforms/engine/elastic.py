"""`ElasticEngine`: an executor whose workers may come, leave, and be lost, one by one."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from omni_platforms.engine.crew import Worker
from omni_platforms.engine.future import carry_out
from omni_platforms.engine.ledger_records import Effects
from omni_platforms.engine.lifecycle import Engine
from omni_platforms.engine.messages import Started
from omni_platforms.errors import (
    DrainTimeoutError,
    ExecutorClosedError,
    WorkerAsleepError,
    WorkerDiedError,
    WorkerSurvivedError,
)
from omni_platforms.events import log_event

logger = logging.getLogger(__name__)

_TERM_GRACE_S = 2.0

OnLoss = Callable[[int, BaseException], object]


class ElasticEngine(Engine):
    """As `Engine`; a worker that ends takes nothing along but the requests that it had.

    Of ranks in lockstep none can be missed: there, and where it was the last worker, its loss is
    the executor's failure.
    """

    def __init__(self, workers: Sequence[Worker], *arguments: Any, **options: Any) -> None:
        self._lockstep: bool = options["lockstep"]
        self._ranks = itertools.count(len(workers))
        self._changing = threading.Lock()
        self._on_loss: list[OnLoss] = []
        super().__init__(workers, *arguments, **options)

    # A worker is lost -----------------------------------------------------------

    def lose(self, rank: int, error: BaseException) -> None:
        """A worker has ended before it was to stop. Called on its pump's thread."""
        effects = None if self._lockstep else self._leave(rank, error)
        if effects is None:
            self.fail(error)
            return
        left = len(self.asking.ranks())
        log_event(logger, "worker_lost", logging.WARNING, rank=rank, left=left, cause=error)
        carry_out(effects)
        thread = threading.Thread(target=self._bury, args=(rank, error), name="omni-bury")
        thread.daemon = True
        thread.start()

    def _leave(self, rank: int, error: BaseException) -> Effects | None:
        """Take a worker off the board, or return `None` when that is the executor's end."""
        board = self.asking.board
        with board.changed:
            others = [other for other in board.dispatcher.serving() if other != rank]
            if not others or board.failure is not None:
                return None
            self.crew.expect_end(rank)
            return board.leave(rank, error)

    def _bury(self, rank: int, error: BaseException) -> None:
        for callback in list(self._on_loss):
            try:
                callback(rank, error)
            except Exception:
                logger.exception("a callback of on_worker_lost failed")
        self._let_go(rank, 0.0)

    def on_loss(self, callback: OnLoss) -> None:
        """Have `callback(rank, error)` called, on a thread of its own, for each loss."""
        self._on_loss.append(callback)

    # Workers come and leave -----------------------------------------------------

    def next_rank(self) -> int:
        """Return the rank of a further worker. None is given twice.

        Raises `ValueError` in lockstep, `WorkerAsleepError`, and as `Board.check_open`.
        """
        if self._lockstep:
            raise ValueError("ranks in lockstep were made for their number: make a new executor")
        board = self.asking.board
        with board.changed:
            board.check_open()
            if board.asleep:
                raise WorkerAsleepError("the workers sleep: call wake_up() before one is added")
        return next(self._ranks)

    def add(self, rank: int, worker: Worker, started: Started) -> None:
        """Take a worker that is up; it gets requests at once.

        Raises `ExecutorClosedError` when the executor has ended meanwhile: then the worker is
        the caller's to end.
        """
        board = self.asking.board
        with self._ending:
            if self._ended or board.failure is not None or board.closing is not None:
                raise ExecutorClosedError("the executor ended before the worker could be added")
            sender = self.crew.enlist(rank, worker)
            self.started = {**self.started, rank: started}
            with board.changed:
                board.join(rank, sender)
            self.crew.start(rank, self.replies)
        log_event(logger, "worker_joined", rank=rank, workers=len(self.asking.ranks()))

    def remove(self, rank: int | None, timeout: float) -> int:
        """Let a worker finish what it has, and end it; return its rank.

        Takes the one with the fewest requests when `rank` is `None`. Raises `ValueError` for a
        rank that is not there, and for the last one; `DrainTimeoutError` when it was not done
        within `timeout` seconds: then it serves on. What ended the executor.
        """
        board = self.asking.board
        with self._changing:
            with board.changed:
                board.check_open()
                chosen = self._leaving(rank)
                board.dispatcher.retire(chosen)
            if not board.wait_for(lambda: board.is_done_with(chosen), timeout):
                with board.changed:
                    board.send_work(board.dispatcher.reinstate(chosen))
                    board.check_open()
                raise DrainTimeoutError(
                    f"worker {chosen} was not done after {timeout} s, and serves on. Give it more "
                    f"time, or drop its requests.\n{self.asking.describe()}"
                )
            gone = WorkerDiedError(f"worker {chosen} was removed")
            with board.changed:
                self.crew.expect_end(chosen)
                effects = board.leave(chosen, gone)
            carry_out(effects)
            self._let_go(chosen, timeout)
            log_event(logger, "worker_left", rank=chosen, workers=len(self.asking.ranks()))
            return chosen

    def _leaving(self, rank: int | None) -> int:
        """Return the worker to remove. Called with the lock held."""
        if self._lockstep:
            raise ValueError("ranks in lockstep cannot be missed: make a new executor")
        serving = self.asking.board.ranks()
        if rank is not None and rank not in serving:
            raise ValueError(f"there is no worker {rank}; there are {serving}")
        if len(serving) < 2:
            raise ValueError("the last worker cannot be removed: call shutdown()")
        return self.asking.board.dispatcher.least_busy() if rank is None else rank

    def _let_go(self, rank: int, timeout: float) -> None:
        """End a worker that is off the board."""
        with self._ending:
            if self._ended or rank not in self.crew.workers:
                return
            try:
                self.crew.stop(timeout, _TERM_GRACE_S, [rank])
            except WorkerSurvivedError as error:  # shutdown tries again
                logger.error("%s", error)
                return
            self.crew.forget(rank)
            self.started = {other: s for other, s in self.started.items() if other != rank}
