"""The ledger's records: open jobs and outputs, and the fates of the last closed ones."""

from __future__ import annotations

from collections.abc import Iterator

from omni_platforms.engine.ledger_records import Job, Output, OutputDescription
from omni_platforms.errors import OutputDroppedError, UnknownOutputError

DELIVERED, DROPPED, FAILED = "delivered", "dropped", "failed"
Fate = str | BaseException
"""What became of an output that is closed; an error is what a later wait gets."""


class Book:
    """Jobs and outputs by id. One thread at a time may call it."""

    def __init__(self, remembered: int) -> None:
        self.jobs: dict[str, Job] = {}
        self._outputs: dict[str, Output] = {}
        self._closed: dict[str, Fate] = {}  # oldest first
        self._remembered = remembered
        self.fates = {DELIVERED: 0, DROPPED: 0, FAILED: 0}
        """How many outputs were closed, by what became of them."""

    def find(self, output_id: str) -> Output | None:
        """Return an open output; of a batch without a split any name may be one."""
        output = self._outputs.get(output_id)
        if output is not None or output_id in self._closed:
            return output
        job = self._unsplit_batch_of(output_id)
        if job is None or job.dropped or job.error is not None:
            return None
        return Output(output_id, job)

    def named_by(self, any_id: str, job: Job | None) -> list[Output]:
        """Return the open outputs that an id stands for: its own, or all of a batch.

        Raises `UnknownOutputError` for an id that is neither open nor remembered.
        """
        if job is not None:
            return list(job.members.values())
        output = self.find(any_id)
        if output is None and self.fate_of(any_id) is None:
            raise _unknown(any_id)
        return [] if output is None else [output]

    def fate_of(self, output_id: str) -> Fate | None:
        """Return what became of an output that is not open; `None` if it is not remembered."""
        job = self._unsplit_batch_of(output_id)
        unnamed = None if job is None else DROPPED if job.dropped else job.error
        return self._closed.get(output_id, unnamed)

    def error_of(self, output_id: str) -> BaseException:
        """Return the error of an output that failed; raise the one that asking for it is."""
        fate = self.fate_of(output_id)
        if isinstance(fate, BaseException):
            return fate
        if fate == DROPPED:
            raise OutputDroppedError(f"output {output_id!r} was dropped: submit the request again")
        if fate == DELIVERED:
            raise UnknownOutputError(
                f"output {output_id!r} was delivered before: keep the future, or its result"
            )
        raise _unknown(output_id)

    def keep(self, output: Output) -> None:
        """Enter an open output."""
        self._outputs[output.id] = output.job.members[output.id] = output

    def enter_member(self, job: Job, output_id: str) -> None:
        """Enter an output that nobody spoke of before the split named it."""
        fate = self.fate_of(output_id)
        if fate is None:
            self.keep(Output(output_id, job))
        else:
            self._remember(output_id, fate)

    def close(self, output: Output, fate: Fate) -> None:
        """Enter the end of an output, and of its job if that was the last."""
        self._outputs.pop(output.id, None)
        output.job.members.pop(output.id, None)
        self.fates[_counted_as(output, fate)] += 1
        self._remember(output.id, fate)
        self.forget_if_over(output.job)

    def forget_if_over(self, job: Job) -> None:
        """Remove a job of which nothing is open any more."""
        if job.computed is not None and job.split and not job.members:
            self.jobs.pop(job.id, None)
            if job.id not in self._closed:
                self._remember(job.id, DELIVERED)

    def describe(self, now: float) -> Iterator[OutputDescription]:
        """Yield every open output, oldest job first."""
        for job in self.jobs.values():
            for output in job.members.values():
                awaited = output.future is not None
                yield OutputDescription(output.id, output.stage, now - job.opened, awaited)

    def counts(self) -> dict[str, int]:
        """Return how many records there are of each kind."""
        return {
            "jobs": len(self.jobs),
            "outputs": len(self._outputs),
            "closed": len(self._closed),
        }

    def _unsplit_batch_of(self, output_id: str) -> Job | None:
        batch_id, slash, _ = output_id.partition("/")
        job = self.jobs.get(batch_id) if slash else None
        return None if job is None or job.split else job

    def _remember(self, output_id: str, fate: Fate) -> None:
        self._closed[output_id] = fate
        while len(self._closed) > self._remembered:
            del self._closed[next(iter(self._closed))]


def _counted_as(output: Output, fate: Fate) -> str:
    """Return under which name an end is counted: an error that was delivered is a failure."""
    if isinstance(fate, BaseException):
        return FAILED
    failed = fate == DELIVERED and output.outcome is not None and output.outcome.error is not None
    return FAILED if failed else fate


def _unknown(output_id: str) -> UnknownOutputError:
    return UnknownOutputError(
        f"there is no output {output_id!r}: it was never issued, or was closed long ago. "
        "Use the async_output_id of what execute_model returned."
    )
