"""The ledger: which outputs are on their way, who waits for them, and what came of each.

A pure state machine. It does no I/O, takes no lock (one stands around it) and
runs nobody else's code: each method returns the `Effects` that its caller
carries out afterwards. So every order of events can be tried.

An output's life::

    open --> arrived --wait--> delivered        OUTPUT_READY came before anybody asked
    open --wait--> awaited --> delivered        somebody asked before it came
    open, arrived, awaited --drop--> dropped    what arrives later is late: counted, and let go
    open, awaited --failure--> failed           with the job's error, or the executor's cause

Delivered, dropped and failed outputs are closed: the ledger remembers a bounded
number of their ids, so that a later wait can say what became of them. What had
arrived before the executor's end stays to be delivered.

A job is one message of work. The outputs of a batch are `{batch_id}/{request_id}`;
they may arrive, be awaited and be dropped before `register_split` has named them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator

from omni_platforms.engine.acknowledgements import Acknowledgements
from omni_platforms.engine.book import DELIVERED, DROPPED, Book, Fate
from omni_platforms.engine.ledger_records import (
    Effects,
    Future,
    Job,
    Outcome,
    Output,
    OutputDescription,
    again,
)
from omni_platforms.engine.messages import member_id
from omni_platforms.errors import ExecutorClosedError, OutputDroppedError, UnknownOutputError


class Ledger:
    """The bookkeeping of one executor. One thread at a time may call it.

    Parameters:
        make_future: makes the future of an output from its id.
        remembered: how many closed ids are remembered.
        clock: the time in seconds, for ages.
    """

    def __init__(
        self,
        make_future: Callable[[str], Future],
        remembered: int = 4096,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_future = make_future
        self._clock = clock
        self._book = Book(remembered)
        self._acknowledgements = Acknowledgements()
        self._failure: BaseException | None = None
        self.late = 0
        """Replies that nobody waited for any more: dropped, repeated, or never asked for."""
        self.submitted = self.computed = self.failed_requests = 0

    # A job --------------------------------------------------------------------

    def open(self, job_id: str, future: Future, *, batch: bool = False) -> None:
        """Enter a new job, whose COMPUTE_DONE settles `future`.

        Raises `ExecutorClosedError` after `fail_all`.
        """
        if self._failure is not None:
            raise ExecutorClosedError(f"the executor has ended: {self._failure}") from self._failure
        job = Job(job_id, future, split=not batch, opened=self._clock())
        self._book.jobs[job_id] = job
        self.submitted += 1
        if not batch:
            self._book.keep(Output(job_id, job))

    def register_split(self, batch_id: str, request_ids: Iterable[str]) -> Effects:
        """Name the outputs of a batch. Raises `UnknownOutputError` if there is none to be named."""
        job = self._book.jobs.get(batch_id)
        if job is None or job.split:
            raise UnknownOutputError(f"{batch_id!r} is no batch whose outputs await their names")
        effects = Effects()
        ids = {member_id(batch_id, request_id) for request_id in request_ids}
        for output in [o for o in job.members.values() if o.id not in ids]:
            self._close_stranger(output, effects)
        for output_id in ids.difference(job.members):
            self._book.enter_member(job, output_id)
        job.split = True
        self._book.forget_if_over(job)
        return effects

    def sent(self, job_id: str, rank: int) -> None:
        """Note that a job is at its worker now; `rank` is whose outputs are wanted."""
        job = self._book.jobs.get(job_id)
        if job is not None:
            job.sent, job.rank = self._clock(), rank

    def compute_done(self, job_id: str, outcome: Outcome) -> Effects:
        """Settle a job's own future. An error is the end of all its outputs."""
        job = self._book.jobs.get(job_id)
        if job is None or job.computed is not None:
            self.late += 1
            return Effects()
        effects = Effects()
        self._settle_job(job, outcome, effects)
        self._count_job(outcome.error)
        if outcome.error is not None:
            self._fail_request(job, again(outcome.error), effects)
        job.computed = self._clock()
        self._book.forget_if_over(job)
        return effects

    # An output ----------------------------------------------------------------

    def expects(self, output_id: str) -> bool:
        """Whether an output that arrives now would be kept."""
        output = self._book.find(output_id)
        return output is not None and output.outcome is None

    def ready(self, output_id: str, outcome: Outcome) -> Effects:
        """Enter an output that has arrived, or its error."""
        output = self._book.find(output_id)
        if output is None or output.outcome is not None:
            self.late += 1
            return Effects(release=[outcome.value])
        effects = Effects()
        output.outcome = outcome
        self._book.keep(output)
        if output.future is not None:
            self._deliver(output, output.future, outcome, effects)
        return effects

    def wait(self, output_id: str) -> tuple[Future, Effects]:
        """Return the future of an output: the same one for as long as the output is open.

        Raises `UnknownOutputError` for one that was delivered or never issued,
        and `OutputDroppedError` for one that was dropped.
        """
        effects = Effects()
        output = self._book.find(output_id)
        if output is None:
            error = self._book.error_of(output_id)
            future = self._make_future(output_id)
            effects.settle.append((future, Outcome(error=again(error))))
            return future, effects
        future = output.future = output.future or self._make_future(output_id)
        self._book.keep(output)
        if output.outcome is not None:
            self._deliver(output, future, output.outcome, effects)
        return future, effects

    def drop(self, any_id: str) -> Effects:
        """Give up an output, or all outputs of a batch.

        Nothing is told to a worker, and `acknowledged` is `None`, where nothing was
        open any more. Raises `UnknownOutputError` for an id that is not remembered.
        """
        effects = Effects()
        effects.acknowledged = self._acknowledgements.find(any_id)
        if effects.acknowledged is not None:
            return effects
        job = self._book.jobs.get(any_id)
        outputs = self._book.named_by(any_id, job)
        unnamed = job is not None and not job.split and not job.dropped
        if not outputs and not unnamed:
            return effects
        if unnamed and job is not None and job.error is None:
            effects.tell.append(any_id)
            effects.rank = job.rank
        for output in outputs:
            self._drop_output(output, effects)
        if job is not None:
            self._drop_job(job, effects)
        told = set(effects.tell) | self._acknowledgements.under(any_id)
        self._acknowledgements.expect(any_id, told, effects)
        return effects

    def dropped(self, ids: Iterable[str]) -> Effects:
        """Enter a worker's acknowledgement: it uses no memory of these outputs any more."""
        effects = Effects()
        self._acknowledgements.enter(ids, effects)
        return effects

    # The end ------------------------------------------------------------------

    def fail_all(self, error: BaseException) -> Effects:
        """Fail whatever has not arrived. What has arrived can still be waited for."""
        self._failure = self._failure or error
        effects = Effects()
        for job in list(self._book.jobs.values()):
            self._fail_job(job, error, effects)
        self._acknowledgements.fail(error, effects)
        return effects

    def lose(self, rank: int, error: BaseException, spare: Container[str] = ()) -> Effects:
        """Fail what was still to come from a worker that is gone, but for the jobs in `spare`.

        Those are as if they had never been sent: their outputs come from another worker.
        """
        effects = Effects()
        for job in [job for job in self._book.jobs.values() if job.rank == rank]:
            if job.id in spare:
                job.sent = job.rank = job.computed = None
            else:
                self._fail_job(job, error, effects)
        return effects

    # For people ---------------------------------------------------------------

    def describe(self) -> Iterator[OutputDescription]:
        """Yield every open output, oldest job first."""
        return self._book.describe(self._clock())

    def unacknowledged(self) -> list[str]:
        """Return the ids of dropped outputs whose memory a worker may still use."""
        return list(self._acknowledgements.left())

    def missing(self) -> bool:
        """Whether anything is still to come: a COMPUTE_DONE or an output."""
        return any(map(_is_missing, self._book.jobs.values()))

    def wanted(self, job_id: str) -> bool:
        """Whether any output of a job is open."""
        job = self._book.jobs.get(job_id)
        return job is not None and bool(job.members)

    def counts(self) -> dict[str, int]:
        """Return how many records there are of each kind."""
        return {**self._book.counts(), "drops": len(self._acknowledgements)}

    def missing_from(self, rank: int) -> bool:
        """Whether anything is still to come from one worker."""
        return any(job.rank == rank and _is_missing(job) for job in self._book.jobs.values())

    def is_missing(self, job_id: str) -> bool:
        """Whether anything of one job is still to come."""
        job = self._book.jobs.get(job_id)
        return job is not None and _is_missing(job)

    def fates(self) -> dict[str, int]:
        """Return how many outputs were delivered, failed and dropped so far."""
        return dict(self._book.fates)

    # Ends ---------------------------------------------------------------------

    def _count_job(self, error: BaseException | None) -> None:
        if error is None:
            self.computed += 1
        else:
            self.failed_requests += 1

    def _settle_job(self, job: Job, outcome: Outcome, effects: Effects) -> None:
        if job.future is not None:
            effects.settle.append((job.future, outcome))
            job.future = None

    def _deliver(self, output: Output, future: Future, outcome: Outcome, effects: Effects) -> None:
        effects.settle.append((future, outcome))
        self._book.close(output, DELIVERED)

    def _end(self, output: Output, error: BaseException, fate: Fate, effects: Effects) -> None:
        """Close an output whose value nobody gets; whoever waits gets the error."""
        if output.outcome is not None:
            effects.release.append(output.outcome.value)
        if output.future is not None:
            effects.settle.append((output.future, Outcome(error=again(error))))
        self._book.close(output, fate)

    def _close_stranger(self, output: Output, effects: Effects) -> None:
        """Close an output that somebody spoke of and that the batch does not have."""
        self.late += output.outcome is not None
        error = UnknownOutputError(f"batch {output.job.id!r} has no output {output.id!r}")
        self._end(output, error, error, effects)

    def _fail_request(self, job: Job, error: BaseException, effects: Effects) -> None:
        """Close all outputs of a job that failed: its own future tells its caller."""
        job.error = error
        for output in list(job.members.values()):
            self._end(output, error, error, effects)

    def _fail_job(self, job: Job, error: BaseException, effects: Effects) -> None:
        """Fail a job and those of its outputs that are not here."""
        self._settle_job(job, Outcome(error=again(error)), effects)
        self._fail_missing(job, again(error), effects)
        if job.computed is None:
            job.computed = self._clock()
            self._count_job(error)
        self._book.forget_if_over(job)

    def _fail_missing(self, job: Job, error: BaseException, effects: Effects) -> None:
        """Fail the outputs that are not here. Who may still ask for one gets the error then."""
        job.error = job.error or error
        for output in [o for o in job.members.values() if o.outcome is None]:
            if output.future is not None or job.computed is None:
                self._end(output, error, error, effects)
            else:
                output.outcome = Outcome(error=again(error))

    def _drop_output(self, output: Output, effects: Effects) -> None:
        if output.outcome is None:
            effects.tell.append(output.id)
            effects.rank = output.job.rank
        error = OutputDroppedError(f"output {output.id!r} was dropped")
        self._end(output, error, DROPPED, effects)
        job = output.job
        if job.split and not job.members and job.computed is None:
            self._drop_job(job, effects)

    def _drop_job(self, job: Job, effects: Effects) -> None:
        """Settle a job of which nobody wants any output; its COMPUTE_DONE is still expected."""
        job.dropped = True
        error = OutputDroppedError(f"request {job.id!r} was dropped")
        self._settle_job(job, Outcome(error=error), effects)


def _is_missing(job: Job) -> bool:
    return job.future is not None or any(o.outcome is None for o in job.members.values())
