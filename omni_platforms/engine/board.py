"""`Board`: all bookkeeping of one executor behind one lock, between its callers and its pumps.

Messages are queued for their senders under the lock, so that every worker gets them in the same
order; futures are settled after it is released (`carry_out`), as that runs anybody's code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

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
        retries: how often a job is sent again when its worker was lost.
        window: how many requests each worker may have ahead.
        lockstep: every rank gets every request; otherwise the least busy one.
        output_rank: in lockstep, the rank whose outputs are delivered.
        make_future: makes the future of an output from its id.
    """

    def __init__(
        self,
        links: Mapping[int, Link],
        window: int,
        lockstep: bool,
        output_rank: int,
        make_future: Callable[[str], Future],
        retries: int = 0,
    ) -> None:
        self.links = dict(links)
        self._retries = retries
        self._told: dict[str, int] = {}
        """Drops on their way, and the workers that must acknowledge them."""
        self._computed: dict[str, Work] = {}
        """Jobs that are computed and have not arrived, where they may be sent again."""
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

    def state(self) -> Literal["running", "asleep", "closing", "ended"]:
        """Return in one word whether requests are taken."""
        if self.failure is not None:
            return "ended"
        if self.closing is not None:
            return "closing"
        return "asleep" if self.asleep else "running"

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
            self._put_drop(rank, work.drops)
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
            self._put_drop(effects.rank, effects.tell)

    def _put_drop(self, rank: int, ids: Sequence[str]) -> None:
        self._told.update(dict.fromkeys(ids, rank))
        self.links[rank].put(Drop(tuple(ids)))

    def _withdraw(self, work: Work, effects: Effects) -> None:
        self.dispatcher.withdraw(work)
        effects.add(self.ledger.dropped(work.drops + effects.tell))
        effects.add(self.ledger.compute_done(work.id, dropped_outcome(work.id)))

    def acknowledged(self, output_id: str) -> Effects:
        """Enter that a worker uses no memory of an output any more."""
        self._told.pop(output_id, None)
        return self.ledger.dropped([output_id])

    def end_previews(self, job_id: str, *, discard: bool = False) -> None:
        """No more previews of a request will come."""
        previews = self.previews.pop(job_id, None)
        if previews is not None:
            previews.end(discard=discard)

    # Workers that come and go ---------------------------------------------------

    def ranks(self) -> list[int]:
        """Return the ranks of the workers that are to stay, in order."""
        return sorted(self.dispatcher.serving())

    def join(self, rank: int, link: Link) -> None:
        """Take a further worker: it is sent what waits. Raises as `check_open`."""
        self.check_open()
        self.links[rank] = link
        self.send_work(self.dispatcher.join(rank))

    def is_done_with(self, rank: int) -> bool:
        """Whether nothing is to come from a worker any more."""
        return (
            self.dispatcher.is_idle(rank)
            and not self.ledger.missing_from(rank)
            and not self.calls.awaits(rank)
            and rank not in self._told.values()
        )

    def keep_for_retry(self, work: Work) -> None:
        """Remember a job that is computed, until its outputs are here."""
        if self._retries:
            self._computed[work.id] = work
            self.forget_if_arrived(work.id)

    def forget_if_arrived(self, any_id: str) -> None:
        """Forget a remembered job of which nothing is to come any more."""
        job_id = any_id.partition("/")[0]
        if job_id in self._computed and not self.ledger.is_missing(job_id):
            del self._computed[job_id]

    def leave(self, rank: int, error: BaseException) -> Effects:
        """Remove a worker that is gone: what had to come from it fails, or is sent to another."""
        self.links.pop(rank, None)
        unfinished = [*self._computed_at(rank), *self.dispatcher.leave(rank)]
        again = [work for work in unfinished if self._may_retry(work)]
        spare = {work.id for work in again}
        effects = self.calls.lose(rank, error)
        effects.add(self.ledger.lose(rank, error, spare))
        gone = [name for name, told in self._told.items() if told == rank]
        gone += [name for work in unfinished for name in work.drops]
        for name in gone:
            effects.add(self.acknowledged(name))
        for work in unfinished:
            self._computed.pop(work.id, None)
            work.drops.clear()
            if work.id not in spare:
                self.end_previews(work.id)
        self.send_work(self.dispatcher.again(again))
        self.changed.notify_all()
        return effects

    def _computed_at(self, rank: int) -> list[Work]:
        works = self._computed.values()
        return [work for work in works if work.origin is not None and work.origin.rank == rank]

    def _may_retry(self, work: Work) -> bool:
        work.tries += 1
        return work.tries <= self._retries and self.ledger.is_missing(work.id)

    # The end --------------------------------------------------------------------

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
            self._computed.clear()
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
