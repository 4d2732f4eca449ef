"""Answers of several ranks to one question: who has answered what, and which error is raised.

A reply is complete when every rank has answered, whatever the others said: one
rank's success never hides another's failure. An internal error beats a rejected
request, the lowest rank's is raised, and all of them are attached to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from omni_platforms.engine.ledger_records import Effects, Future, Outcome, again
from omni_platforms.errors import (
    RequestRejectedError,
    UnknownMethodError,
    UnsendableError,
    WorkerAsleepError,
)

_REJECTED = (RequestRejectedError, WorkerAsleepError, UnknownMethodError, UnsendableError)


class RankReplies:
    """One answer from each of several ranks. One thread at a time may call it."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self.left = set(ranks)
        self._outcomes: dict[int, Outcome] = {}

    def add(self, rank: int, outcome: Outcome) -> bool:
        """Enter an answer; return whether all are there now, and were not before."""
        if rank not in self.left:
            return False
        self.left.discard(rank)
        self._outcomes[rank] = outcome
        return not self.left

    @property
    def errors(self) -> dict[int, BaseException]:
        """The errors so far, by rank."""
        found = sorted(self._outcomes.items())
        return {rank: outcome.error for rank, outcome in found if outcome.error is not None}

    def combined(self) -> Outcome:
        """Return all values, in the order of the ranks, or the error to raise."""
        if self.errors:
            return Outcome(error=combine_errors(self.errors))
        return Outcome([outcome.value for _, outcome in sorted(self._outcomes.items())])


def combine_errors(errors: Mapping[int, BaseException]) -> BaseException:
    """Return the one error that is raised for several; its `rank_errors` has them all."""
    ranks = sorted(errors, key=lambda rank: (isinstance(errors[rank], _REJECTED), rank))
    raised = errors[ranks[0]]
    with contextlib.suppress(Exception):  # a class that refuses attributes, in its own way
        copies = {rank: again(error) for rank, error in errors.items()}  # itself would be a cycle
        raised.rank_errors = copies  # type: ignore[attr-defined]
        if hasattr(raised, "add_note"):  # Python 3.11
            raised.add_note(f"in worker {ranks[0]}")
            for rank in ranks[1:]:
                raised.add_note(f"worker {rank}: {type(errors[rank]).__name__}: {errors[rank]}")
    return raised


class Calls:
    """Calls of workers' methods that are under way. One thread at a time may call it."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[RankReplies, Future]] = {}
        self.late = 0
        """Replies to calls that had timed out, or were never made."""

    def __len__(self) -> int:
        return len(self._open)

    def open(self, call_id: str, ranks: Iterable[int], future: Future) -> None:
        """Enter a call; `future` gets the combined outcome."""
        self._open[call_id] = RankReplies(ranks), future

    def reply(self, rank: int, call_id: str, outcome: Outcome) -> Effects:
        """Enter one rank's answer."""
        effects = Effects()
        found = self._open.get(call_id)
        if found is None or rank not in found[0].left:
            self.late += 1
        elif found[0].add(rank, outcome):
            effects.settle.append((found[1], found[0].combined()))
            del self._open[call_id]
        return effects

    def lose(self, rank: int, error: BaseException) -> Effects:
        """Answer for a worker that is gone."""
        effects = Effects()
        for call_id, (replies, _) in list(self._open.items()):
            if rank in replies.left:
                effects.add(self.reply(rank, call_id, Outcome(error=again(error))))
        return effects

    def awaits(self, rank: int) -> bool:
        """Whether a worker has yet to answer a call."""
        return any(rank in replies.left for replies, _ in self._open.values())

    def give_up(self, call_id: str) -> set[int]:
        """Forget a call; return the ranks that have not answered."""
        found = self._open.pop(call_id, None)
        return set() if found is None else found[0].left

    def fail_all(self, error: BaseException) -> Effects:
        """Fail every call."""
        effects = Effects()
        for _, future in self._open.values():
            effects.settle.append((future, Outcome(error=again(error))))
        self._open.clear()
        return effects

    def describe(self) -> dict[str, list[int]]:
        """Return the ranks that each call still waits for."""
        return {call_id: sorted(replies.left) for call_id, (replies, _) in self._open.items()}
