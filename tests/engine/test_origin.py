"""A future that is done says which worker it came from, and when it was where on the way."""

from __future__ import annotations

import pytest

from omni_platforms.engine import Origin
from omni_platforms.engine.messages import Kind
from omni_platforms.errors import WorkerDiedError
from tests.engine.fakes import PATIENCE, Pair, executor_of

STAMPS = {"queue": 1.0, "compute": 2.0}
LATER = {**STAMPS, "room": 3.0, "gate": 4.0, "copy": 5.0, "send": 6.0}


def test_an_output_has_the_stamps_of_its_whole_way(pair: Pair) -> None:
    executor, worker = pair
    computed = executor.submit("x")
    assert computed.origin is None
    name = worker.begin()
    output = executor.wait_output_ready(name)
    worker.say(Kind.COMPUTE_DONE, name, stamps=STAMPS)
    computed.result(PATIENCE)
    assert computed.origin == Origin(0, STAMPS)
    assert output.origin is None
    worker.say(Kind.OUTPUT_READY, name, stamps=LATER, error=None)
    assert output.exception(PATIENCE) is not None  # it had no packet, and has an origin
    assert output.origin == Origin(0, LATER)


def test_an_output_that_came_before_it_was_asked_for(pair: Pair) -> None:
    executor, worker = pair
    computed = executor.submit("x")
    name = worker.begin()
    worker.say(Kind.COMPUTE_DONE, name)
    worker.output(name, "value")
    computed.result(PATIENCE)
    output = executor.wait_output_ready(name)
    assert output.result(PATIENCE) == "value"
    assert output.origin == Origin(0, {})


def test_a_failed_forward_says_whose_it_was(pair: Pair) -> None:
    executor, worker = pair
    computed = executor.submit("x")
    worker.computed(worker.begin(), ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        computed.result(PATIENCE)
    assert computed.origin == Origin(0, {})


def test_what_no_worker_answered_has_none(pair: Pair) -> None:
    executor, worker = pair
    computed = executor.submit("x")
    worker.begin()
    worker.die()
    with pytest.raises(WorkerDiedError):
        computed.result(PATIENCE)
    assert computed.origin is None


def test_in_lockstep_it_is_the_rank_whose_outputs_are_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {"mode": "lockstep", "output_rank": 1}
    with executor_of(monkeypatch, 2, **options) as (executor, workers):
        computed = executor.submit("x")
        for worker in reversed(workers):  # the other rank is the last to be done
            worker.computed(worker.begin())
        computed.result(PATIENCE)
        assert computed.origin == Origin(1, {})
