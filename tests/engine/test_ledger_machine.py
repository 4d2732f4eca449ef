"""Whatever callers, workers and failures do to a ledger, in orders that hypothesis finds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from omni_platforms.engine.ledger import Ledger
from omni_platforms.engine.ledger_records import Effects, Outcome
from omni_platforms.engine.messages import member_id
from omni_platforms.errors import EngineError, ExecutorClosedError, UnknownOutputError
from tests.engine.ledger_run import CAUSE, Promise
from tests.engine.test_ledger_orders import (
    DroppedOutputsAreKept,
    EarlyOutputsAreLost,
    JobsAreNeverForgotten,
)

REMEMBERED = 8
MEMBERS = ("x", "y", "z")


class LedgerMachine(RuleBasedStateMachine):
    """Several jobs at once; a model knows which values must still be somewhere."""

    ledger_class: type[Ledger] = Ledger
    jobs = Bundle("jobs")
    outputs = Bundle("outputs")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = self.ledger_class(Promise)  # type: ignore[arg-type]
        self.ledger._book._remembered = REMEMBERED
        self.failed = False
        self.issued = 0
        self.arrived: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()
        self.settled: Counter[int] = Counter()
        self.waiting: dict[str, Promise] = {}
        self.promises: list[Promise] = []
        self.acknowledgements: list[Any] = []
        self.told: set[str] = set()
        self.batches: set[str] = set()

    def carry_out(self, effects: Effects) -> None:
        for future, outcome in effects.settle:
            if isinstance(future, Promise):
                future.outcomes.append(outcome)
                if outcome.value is not None:
                    self.gone[outcome.value] += 1
                if self.waiting.get(future.id) is future:
                    del self.waiting[future.id]
            elif outcome.error is None:
                future.set_result(outcome.value)
            else:
                future.set_exception(outcome.error)
        self.gone.update(value for value in effects.release if value is not None)
        self.told.update(effects.tell)
        if effects.acknowledged is not None:
            self.acknowledgements.append(effects.acknowledged)

    @rule(target=jobs, batch=st.booleans())
    def open(self, batch: bool) -> Any:
        self.issued += 1
        job_id, promise = f"j{self.issued}", Promise("job")
        try:
            self.ledger.open(job_id, promise, batch=batch)  # type: ignore[arg-type]
        except ExecutorClosedError:
            assert self.failed
            return multiple()
        assert not self.failed
        self.promises.append(promise)
        if batch:
            self.batches.add(job_id)
        return job_id

    @rule(target=outputs, job=jobs, member=st.sampled_from(MEMBERS))
    def name(self, job: str, member: str) -> str:
        return member_id(job, member) if job in self.batches else job

    @rule(job=jobs, members=st.sets(st.sampled_from(MEMBERS)))
    def name_members(self, job: str, members: set[str]) -> None:
        self.split(job, members)

    def split(self, job: str, members: set[str]) -> None:
        record = self.ledger._book.jobs.get(job)
        if record is not None and not record.split:
            self.carry_out(self.ledger.register_split(job, members))
            return
        with pytest.raises(UnknownOutputError):
            self.ledger.register_split(job, members)

    @rule(job=jobs)
    def sent(self, job: str) -> None:
        self.ledger.sent(job, 0)

    @rule(job=jobs, fails=st.booleans())
    def compute_done(self, job: str, fails: bool) -> None:
        outcome = Outcome(error=ValueError(job)) if fails else Outcome()
        self.carry_out(self.ledger.compute_done(job, outcome))

    @rule(output=outputs, fails=st.booleans())
    def ready(self, output: str, fails: bool) -> None:
        value = None if fails else f"{output} #{self.arrived.total()}"
        outcome = Outcome(value, ValueError(output) if fails else None)
        if value is not None:
            self.arrived[value] += 1
        expected, late = self.ledger.expects(output), self.ledger.late
        self.carry_out(self.ledger.ready(output, outcome))
        assert expected == (self.ledger.late == late)

    @rule(output=outputs)
    def wait(self, output: str) -> None:
        try:
            found, effects = self.ledger.wait(output)
        except EngineError:
            assert output not in self.waiting
            return
        promise: Any = found
        assert promise is self.waiting.get(output, promise), "one output, one future"
        if promise not in self.promises:
            self.promises.append(promise)
            self.waiting[output] = promise
        self.carry_out(effects)

    @rule(output=outputs | jobs)
    def drop(self, output: str) -> None:
        try:
            self.carry_out(self.ledger.drop(output))
        except EngineError:
            return
        assert output not in self.waiting, "who waits for a dropped output is told"
        assert output.partition("/")[0] in self.batches or not self.ledger.expects(output)

    @rule()
    def acknowledge(self) -> None:
        self.carry_out(self.ledger.dropped(self.told))
        self.told.clear()
        assert all(future.done() for future in self.acknowledgements)
        self.acknowledgements.clear()

    @rule()
    def fail_all(self) -> None:
        self.failed = True
        self.carry_out(self.ledger.fail_all(CAUSE))
        assert not self.waiting, "nobody waits after the end"
        self.told.clear()

    @invariant()
    def values_go_once(self) -> None:
        assert all(self.gone[value] <= 1 for value in self.arrived)
        kept = {
            output.outcome.value
            for output in self.ledger._book._outputs.values()
            if output.outcome is not None and output.outcome.value is not None
        }
        assert kept == {value for value in self.arrived if not self.gone[value]}

    @invariant()
    def promises_are_settled_once(self) -> None:
        assert all(len(promise.outcomes) <= 1 for promise in self.promises)
        if self.failed:
            assert all(promise.outcomes for promise in self.promises)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.ledger.counts()["closed"] <= REMEMBERED
        for job in self.ledger._book.jobs.values():
            assert job.members or not job.split or job.computed is None

    def teardown(self) -> None:
        """Whatever happened, the end leaves nothing open but what had arrived."""
        self.fail_all()
        for job in list(self.ledger._book.jobs):
            self.carry_out(self.ledger.drop(job))
            if job in self.ledger._book.jobs:
                self.split(job, set(MEMBERS))
        self.values_go_once()
        assert self.gone.total() == self.arrived.total()
        counts = self.ledger.counts()
        assert not any(counts[kind] for kind in ("jobs", "outputs", "drops")), counts


QUICK = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_anything_that_can_happen() -> None:
    run_state_machine_as_test(LedgerMachine, settings=QUICK)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_much_more_of_it() -> None:
    thorough = settings(max_examples=1000, stateful_step_count=80, deadline=None)
    run_state_machine_as_test(LedgerMachine, settings=thorough)


@pytest.mark.parametrize("bug", [EarlyOutputsAreLost, DroppedOutputsAreKept, JobsAreNeverForgotten])
def test_a_planted_bug_is_found(bug: type[Ledger]) -> None:
    class Planted(LedgerMachine):
        ledger_class = bug

    search = settings(QUICK, phases=[Phase.generate], max_examples=300, derandomize=True)
    with pytest.raises((AssertionError, LookupError)):
        run_state_machine_as_test(Planted, settings=search)
