"""What is heard of an engine in its own process, and of a worker's parts."""

from __future__ import annotations

import pytest

from omni_platforms import OutputDroppedError
from omni_platforms.engine.future import EngineFuture
from omni_platforms.engine.worker.work import Phase, WorkTable
from omni_platforms.observe import of_worker
from omni_platforms.observe.around import put_around, take_away
from omni_platforms.outputs.capture import CaptureGate
from tests.engine.conftest import pair
from tests.engine.fakes import PATIENCE, Pair, until
from tests.observe.listener import Listener, listening

__all__ = ["pair"]


def test_a_request_and_its_output(pair: Pair) -> None:
    executor, worker = pair
    heard = Listener()
    with listening(heard):
        computed = executor.submit("a")
        output = executor.wait_output_ready(computed.async_output_id)
        name = worker.begin()
        worker.computed(name)
        computed.result(PATIENCE)
        worker.output(name, "value")
        assert output.result(PATIENCE) == "value"
        until(lambda: len(heard.ended) == 2)
    assert [(r.kind, r.id, r.error) for r in heard.ended] == [
        ("request", name, None),
        ("arrival", name, None),
    ]
    assert [record.facts["rank"] for record in heard.ended] == [0, 0]
    assert heard.named("submit") == [name]
    assert heard.named("result") == [name, name]
    assert heard.named("receive COMPUTE_DONE") == heard.named("receive OUTPUT_READY") == [name]


def test_batches_failures_and_cancellations(pair: Pair) -> None:
    executor, worker = pair
    heard = Listener()
    with listening(heard):
        batch = executor.submit_batch({"x": 1})
        worker.begin_batch()
        worker.computed(batch.async_output_id, ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            batch.result(PATIENCE)
        other = executor.submit("b")
        assert other.cancel()
        assert other.cancel()
        until(lambda: len(heard.ended) == 2)
    assert [record.error for record in heard.ended] == ["ValueError", "cancelled"]
    assert heard.named("submit") == [batch.async_output_id, other.async_output_id]


def test_what_was_given_out_before_and_after_is_as_ever(pair: Pair) -> None:
    executor, worker = pair
    engine = executor._engine
    before = [set(vars(part)) for part in (engine.asking, engine.crew, engine.crew.pumps[0])]
    early = executor.submit("a")
    heard = Listener()
    with listening(heard):
        worker.computed(worker.begin())
        early.result(PATIENCE)
    late = executor.submit("b")
    after = [set(vars(part)) for part in (engine.asking, engine.crew, engine.crew.pumps[0])]
    assert before == after
    assert type(early) is type(late) is EngineFuture
    assert heard.begun == []
    assert heard.named("receive COMPUTE_DONE")


def test_a_dropped_output_has_its_end(pair: Pair) -> None:
    executor, worker = pair
    heard = Listener()
    with listening(heard):
        computed = executor.submit("a")
        output = executor.wait_output_ready(computed.async_output_id)
        worker.begin()
        executor._ask.drop(computed.async_output_id)
        with pytest.raises(OutputDroppedError):
            output.result(PATIENCE)
        until(lambda: len(heard.ended) == 2)
    assert {record.error for record in heard.ended} == {"OutputDroppedError"}


# A worker's table -----------------------------------------------------------------


class Clock:
    """Marks are numbers, which are their own moments."""

    def __init__(self) -> None:
        self.next = 0.0

    def mark(self, stream: object) -> float:
        self.next += 1
        return self.next

    def at(self, mark: float | None) -> float | None:
        return mark


def table_with(side: object = "side") -> tuple[WorkTable, of_worker._Table]:
    table = WorkTable()
    steps = of_worker._Table.__new__(of_worker._Table)
    steps._table, steps._rank, steps._device, steps._side = table, 3, "npu:3", side  # type: ignore[assignment]
    steps._clock, steps._capturing = Clock(), lambda: False  # type: ignore[assignment]
    steps._open, steps._last_copied, steps._gate = {}, None, CaptureGate()
    for name in ("add", "enter", "drop", "finish"):
        put_around(table, name, getattr(steps, name))
    return table, steps


def test_the_way_of_an_output_in_its_worker() -> None:
    heard = Listener()
    table, steps = table_with()
    with listening(heard):
        table.add("r1")
        for phase in (Phase.COMPUTE, Phase.ROOM, Phase.GATE, Phase.COPY, Phase.SEND):
            assert table.enter("r1", phase)
        assert not table.finish("r1")
    (record,) = heard.ended
    assert (record.kind, record.id, record.source) == ("work", "r1", "worker 3")
    assert list(record.moments) == ["queue", "compute", "room", "gate", "copy", "send"]
    assert record.spans == {"forward": (1.0, 2.0), "copy": (2.0, 3.0)}
    assert steps._open == {}


def test_a_capture_is_not_marked() -> None:
    heard = Listener()
    table, steps = table_with()
    steps._capturing = lambda: True  # type: ignore[assignment]
    with listening(heard):
        table.add("r1")
        table.enter("r1", Phase.COMPUTE)
        table.finish("r1")
    assert heard.ended[0].spans == {}
    assert steps._clock.next == 0.0  # type: ignore[attr-defined]


def test_nothing_is_asked_while_somebody_captures() -> None:
    heard = Listener()
    table, steps = table_with()
    asked: list[str] = []
    with listening(heard):
        table.add("r1")
        table.enter("r1", Phase.COMPUTE)
        table.enter("r1", Phase.GATE)
        steps._clock.at = lambda mark: asked.append("at")  # type: ignore[method-assign, assignment]
        with steps._gate.hold():
            table.add("r2")
            table.enter("r2", Phase.COMPUTE)
            table.finish("r1")
            table.finish("r2")
    assert [record.spans for record in heard.ended] == [{}, {}]
    assert asked == []
    assert steps._clock.next == 3.0  # type: ignore[attr-defined]


def test_twin_who_does_not_ask_the_gate_asks_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_worker, "unless_captured", lambda gate, ask: ask())
    with pytest.raises(AssertionError):
        test_nothing_is_asked_while_somebody_captures()


def test_what_is_dropped_is_closed_whether_it_was_begun_or_not() -> None:
    heard = Listener()
    table, steps = table_with()
    with listening(heard):
        table.add("queued")
        assert table.drop("queued")
        table.add("begun")
        table.enter("begun", Phase.COMPUTE)
        assert not table.drop("begun")
        assert table.finish("begun")
        assert table.drop("unknown")
    assert [(record.id, record.error) for record in heard.ended] == [
        ("queued", "dropped"),
        ("begun", "dropped"),
    ]
    assert steps._open == {}


def test_twin_a_drop_that_is_not_heard_stays_open() -> None:
    real = table_with

    def deaf(side: object = "side") -> tuple[WorkTable, of_worker._Table]:
        table, steps = real(side)
        take_away(table, "drop")
        return table, steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "table_with", deaf)
        with pytest.raises(AssertionError):
            test_what_is_dropped_is_closed_whether_it_was_begun_or_not()
