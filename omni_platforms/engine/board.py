"""`Board`: all bookkeeping of one executor behind one lock, between its callers and its pumps.

Messages are queued for their senders under the lock, so that every worker gets them in the same
order; futures are settled after it is released (`carry_out`), as that runs anybody's code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from omni_platforms.engine.dispatch import Dispatcher, Sends, Work
from omni_platforms.engine.future import carry_out
from omni_platforms.engine.ledger import Ledger
from omni_platforms.engine.ledger_records import Effects, Future, Outcome
from omni_platforms.engine.messages import Drop, Execute, ExecuteBatch, Message
from omni_platforms.engine.previews import Previews
from omni_platforms.engine.ranks import Calls
from omni_platforms.errors import ExecutorClosedError, OutputDroppedError, WorkerAsleepError


class Link(Protocol):
    """The way to one worker."""

    def put(self, message: Message) -> None:
        """Have a message sent, in order. Does not block."""


class Board:
    """The state of one executor. Its methods want the lock held, unless they say otherwise.

    Parameters:
        links: the ways to the workers, by rank.
        window: how many requests each worker may have ahead.
        lockstep: every rank gets every request; otherwise the least busy one.
        output_rank: in lockstep, the rank whose outputs are delivered.
        make_future: makes the future of an output from its id.
    """

    def __init__(
        self,
        links: Sequence[Link],
        window: int,
        lockstep: bool,
        output_rank: int,
        make_future: Callable[[str], Future],
    ) -> None:
        self.links = links
        self.lockstep = lockstep
        self.output_rank = output_rank
        self.changed = threading.Condition(threading.Lock())
        """The lock; whoever waits for a state of the board waits on it."""
        self.ledger = Ledger(make_future)
        self.dispatcher = Dispatcher(len(links), window, lockstep)
        self.calls = Calls()
        self.previews: dict[str, Previews] = {}
        self.closing: str | None = None
        """Why nothing new is accepted, though what was accepted is worked off."""
        self.asleep = False
        self.failure: BaseException | None = None
        self.late = 0

    def check_open(self) -> None:
        """Raise `ExecutorClosedError` when nothing new is accepted."""
        if self.failure is not None:
            raise ExecutorClosedError(f"the executor has ended: {self.failure}") from self.failure
        if self.closing is not None:
            raise ExecutorClosedError(f"{self.closing}: make a new executor")

    def enter(
        self, message: Execute | ExecuteBatch, future: Future, previews: Previews | None
    ) -> None:
        """Take a new job: it is sent now, or when a worker has room.

        Raises as `check_open`, and `WorkerAsleepError`.
        """
        self.check_open()
        if self.asleep:
            raise WorkerAsleepError("the workers sleep: call wake_up() before the next request")
        self.ledger.open(message.id, future, batch=isinstance(message, ExecuteBatch))
        if isinstance(message, ExecuteBatch):
            self.ledger.register_split(message.id, message.requests)
        if previews is not None:
            self.previews[message.id] = previews
        self.send_work(self.dispatcher.submit(Work(message.id, message)))

    def send_work(self, sends: Sends) -> None:
        """Queue jobs for their workers, in order."""
        for rank, work in sends:
            if not self.lockstep or rank == self.output_rank:
                self.ledger.sent(work.id, rank)
                self.links[rank].put(work.message)
            else:
                self.links[rank].put(_without_previews(work.message))
            if work.drops and not self.lockstep:
                self.send_drops(rank, work)

    def send_drops(self, rank: int, work: Work) -> None:
        """Tell a worker what was dropped before it could be told."""
        if work.drops:
            self.links[rank].put(Drop(tuple(work.drops)))
            work.drops.clear()

    def drop(self, any_id: str) -> Effects:
        """Give up an output, or all of a batch; `Effects.acknowledged` as of `Ledger.drop`."""
        effects = self.ledger.drop(any_id)
        if effects.tell:
            job_id = any_id.partition("/")[0]
            self._tell(job_id, effects)
            if not self.ledger.wanted(job_id):
                self.end_previews(job_id, discard=True)
        return effects

    def _tell(self, job_id: str, effects: Effects) -> None:
        """Tell the worker, now or when it may know, or nobody when none has the job."""
        if effects.rank is None:
            work = self.dispatcher.waiting(job_id)
            if work is not None and not self.ledger.wanted(job_id):
                self._withdraw(work, effects)
                return
        else:
            # One rank of a lockstep must not skip a forward that the others make.
            work = self.dispatcher.work_of(effects.rank, job_id) if self.lockstep else None
        if work is not None:
            work.drops += effects.tell
        elif effects.rank is not None:
            self.links[effects.rank].put(Drop(tuple(effects.tell)))

    def _withdraw(self, work: Work, effects: Effects) -> None:
        self.dispatcher.withdraw(work)
        effects.add(self.ledger.dropped(work.drops + effects.tell))
        effects.add(self.ledger.compute_done(work.id, dropped_outcome(work.id)))

    def end_previews(self, job_id: str, *, discard: bool = False) -> None:
        """No more previews of a request will come."""
        previews = self.previews.pop(job_id, None)
        if previews is not None:
            previews.end(discard=discard)

    def fail(self, error: BaseException) -> bool:
        """Take the lock, fail whatever has not arrived, and accept nothing any more.

        Returns false when the executor had ended before.
        """
        with self.changed:
            if self.failure is not None:
                return False
            self.failure = error
            effects = self.ledger.fail_all(error)
            effects.add(self.calls.fail_all(error))
            self.dispatcher.clear()
            for job_id in list(self.previews):
                self.end_previews(job_id)
            self.changed.notify_all()
        carry_out(effects)
        return True

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Take the lock, and block until the condition holds or the executor has ended.

        Returns whether the condition holds, at most `timeout` seconds later.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.failure is not None or condition(), timeout)
            return condition()

    def is_idle(self) -> bool:
        """Whether nothing is to come: no COMPUTE_DONE and no output."""
        return not self.ledger.missing()


def _without_previews(message: Execute | ExecuteBatch) -> Execute | ExecuteBatch:
    return replace(message, previews=0) if isinstance(message, Execute) else message


def dropped_outcome(job_id: str) -> Outcome:
    """Return the outcome of a job that was dropped before it was begun."""
    return Outcome(error=OutputDroppedError(f"request {job_id!r} was dropped"))
