"""Every order of the events of a batch comes to the same outputs; planted bugs do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omni_platforms.engine.book import Book
from omni_platforms.engine.ledger import Ledger
from omni_platforms.engine.ledger_records import Effects, Job, Outcome, Output
from tests.engine.ledger_run import Event, check, orders

EXTRAS: dict[str, tuple[Event, ...]] = {
    "nothing else": (),
    "one output dropped": (("drop", 0),),
    "one output cancelled": (("cancel", 0),),
    "batch dropped": (("drop_all", None),),
    "death": (("failure", None),),
    "death, and one output dropped": (("failure", None), ("drop", 0)),
}


def _cases() -> list[Any]:
    """Return what a normal run tries, and what takes minutes."""
    cases = []
    for size in (1, 2, 3):
        for name, extra in EXTRAS.items():
            if size == 3 and len(extra) > 1:
                continue  # two million orders
            heavy = (size == 3 and extra) or (size == 2 and len(extra) > 1)
            marks = [pytest.mark.slow, pytest.mark.timeout(1200)] if heavy else []
            cases.append(pytest.param(size, extra, id=f"{size}, {name}", marks=marks))
    return cases


@pytest.mark.parametrize(("size", "extra"), _cases())
def test_every_order(size: int, extra: tuple[Event, ...]) -> None:
    tried = 0
    for order in orders(size, *extra):
        check(size, order)
        tried += 1
    assert tried >= 24


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_order_with_a_batch_that_fails(size: int) -> None:
    for order in orders(size, compute="refused"):
        check(size, order)


def test_a_batch_of_32() -> None:
    """Each output at every one of the 24 places of {COMPUTE_DONE, split, ready, wait}."""
    for order in orders(1):
        events: list[Event] = []
        for kind, member in order:
            members = range(32) if member is not None else [None]
            events += [(kind, m) for m in members]
        check(32, events)


# Planted bugs ---------------------------------------------------------------------------------


class EarlyOutputsAreLost(Ledger):
    def ready(self, output_id: str, outcome: Outcome) -> Effects:
        if output_id not in self._book._outputs:
            return Effects(release=[outcome.value])
        return super().ready(output_id, outcome)


class DroppedOutputsAreKept(Ledger):
    def _drop_output(self, output: Output, effects: Effects) -> None:
        if output.outcome is None:
            super()._drop_output(output, effects)


class LateOutputsAreDelivered(Ledger):
    def _fail_missing(self, job: Job, error: BaseException, effects: Effects) -> None:
        job.error = error


class DeathLosesWhatHadArrived(Ledger):
    _fail_missing = Ledger._fail_request


class JobsAreForgottenAtCompute(Ledger):
    def compute_done(self, job_id: str, outcome: Outcome) -> Effects:
        effects = super().compute_done(job_id, outcome)
        self._book.jobs.pop(job_id, None)
        return effects


class JobsAreNeverForgotten(Ledger):
    def __init__(self, make_future: Any) -> None:
        super().__init__(make_future)
        self._book = KeepsJobs(4096)


class KeepsJobs(Book):
    def forget_if_over(self, job: Job) -> None:
        pass


class WaitsForgetWhoWaited(Ledger):
    def wait(self, output_id: str) -> Any:
        output = self._book.find(output_id)
        future, effects = super().wait(output_id)
        if output is not None:
            output.future = None
        return future, effects


class DropsAreAcknowledgedAtOnce(Ledger):
    def drop(self, any_id: str) -> Effects:
        effects = super().drop(any_id)
        if effects.tell and effects.acknowledged is not None:
            effects.acknowledged.set_result(True)
        return effects


class AFailedBatchKeepsItsOutputs(Ledger):
    def _fail_request(self, job: Job, error: BaseException, effects: Effects) -> None:
        job.error = error


@pytest.mark.parametrize(
    ("bug", "extra", "compute"),
    [
        (EarlyOutputsAreLost, (), "computed"),
        (DroppedOutputsAreKept, (("drop", 0),), "computed"),
        (LateOutputsAreDelivered, (("failure", None),), "computed"),
        (DeathLosesWhatHadArrived, (("failure", None),), "computed"),
        (JobsAreForgottenAtCompute, (), "computed"),
        (JobsAreNeverForgotten, (), "computed"),
        (WaitsForgetWhoWaited, (), "computed"),
        (DropsAreAcknowledgedAtOnce, (("drop", 0),), "computed"),
        (AFailedBatchKeepsItsOutputs, (), "refused"),
    ],
)
def test_a_planted_bug_is_found(
    bug: Callable[..., Ledger], extra: tuple[Event, ...], compute: str
) -> None:
    def all_orders() -> None:
        for order in orders(2, *extra, compute=compute):
            check(2, order, bug)

    with pytest.raises((AssertionError, KeyError, LookupError)):
        all_orders()
