"""The loop that keeps workers supplied: bounds, failures, stops, and what it lets go of."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from omni_platforms.errors import JobError, WorkerDiedError
from omni_platforms.jobs.records import Ended
from omni_platforms.jobs.requests import Request, read_requests
from omni_platforms.jobs.runner import Runner, Save
from tests.jobs.fakes import FakeExecutor

PATIENCE = 20.0


def requests(count: int) -> list[Request]:
    return read_requests(b'{"n": %d}' % number for number in range(count)).requests


class Output:
    """Something that a weak reference can see."""


def saved(request_id: str, output: Any) -> tuple[Any, list[str]]:
    return {"saved": request_id}, []


class Run:
    """A runner over a fake executor, and what ended."""

    def __init__(
        self,
        executor: FakeExecutor,
        save: Save = saved,
        in_flight: int = 3,
        on_end: Callable[[Ended], None] | None = None,
        output_timeout: float = PATIENCE,
        device_events: bool = True,
    ) -> None:
        self.executor = executor
        self.ended: list[Ended] = []
        self.stops = 0
        self._threads_before = set(threading.enumerate())
        self.runner = Runner(
            executor,
            save,
            on_end or self.ended.append,
            self._stopped,
            in_flight=in_flight,
            savers=2,
            grace=1.5,
            output_timeout=output_timeout,
            device_events=device_events,
        )

    def _stopped(self) -> None:
        self.stops += 1

    def threads_left(self) -> list[str]:
        new = set(threading.enumerate()) - self._threads_before
        return [thread.name for thread in new if thread.name.startswith("omni-save")]

    def outcome(self) -> dict[int, str]:
        return {e.request.value["n"]: "ok" if e.ok else e.stage for e in self.ended}


def test_every_request_ends_once() -> None:
    run = Run(FakeExecutor(lambda request: request))
    run.runner.run(requests(50))
    assert run.outcome() == dict.fromkeys(range(50), "ok")
    assert len(run.ended) == 50
    assert run.threads_left() == []


def test_no_more_are_in_flight_than_allowed() -> None:
    run = Run(FakeExecutor(lambda request: request, hold=4), in_flight=4)
    run.runner.run(requests(12))
    assert run.executor.most_open == 4
    assert len(run.ended) == 12


def test_an_output_that_is_being_saved_counts_as_in_flight() -> None:
    """Otherwise a slow disk would let outputs pile up."""
    gate, most = threading.Event(), []

    def save(request_id: str, output: Any) -> tuple[Any, list[str]]:
        assert gate.wait(PATIENCE)
        return None, []

    executor = FakeExecutor(lambda request: request)
    submit = executor.submit

    def counting(request: Any) -> Any:
        most.append(request["n"])
        if len(most) == 3:
            threading.Timer(0.1, gate.set).start()  # time to do what it must not do
        if len(most) > 3 and not gate.is_set():
            gate.set()
            raise AssertionError(f"{len(most)} requests are in flight, where 3 may be")
        return submit(request)

    executor.submit = counting  # type: ignore[method-assign]
    run = Run(executor, save)
    run.runner.run(requests(6))
    assert len(run.ended) == 6


def test_a_request_that_fails_costs_only_itself() -> None:
    def answer(request: Any) -> Any:
        if request["n"] == 1:
            raise ValueError("no")
        return request

    def save(request_id: str, output: Any) -> tuple[Any, list[str]]:
        if output["n"] == 2:
            raise OSError(28, "No space left on device")
        return None, []

    run = Run(FakeExecutor(answer), save)
    run.runner.run(requests(4))
    assert run.outcome() == {0: "ok", 1: "forward", 2: "save", 3: "ok"}
    line = next(e for e in run.ended if e.stage == "forward").line()
    assert line["status"] == "failed"
    assert (line["error"]["type"], line["error"]["message"]) == ("ValueError", "no")
    assert line["worker"] == 1


@pytest.mark.parametrize(("device_events", "forward_ends"), [(True, 5.0), (False, 3.0)])
def test_spans_are_those_of_the_worker(device_events: bool, forward_ends: float) -> None:
    """With a device the forward ends behind the gate, otherwise with the worker's method."""
    run = Run(FakeExecutor(lambda request: request), device_events=device_events)
    run.runner.run(requests(1))
    spans = run.ended[0].spans
    assert list(spans) == ["queue", "forward", "copy", "hand-over", "save"]
    assert (spans["forward"], spans["copy"]) == ((2.0, forward_ends), (forward_ends, 6.0))


def test_a_worker_that_dies_ends_the_run_and_what_came_before_is_kept() -> None:
    executor = FakeExecutor(lambda request: request, hold=100)
    death = WorkerDiedError("worker 0 ended: killed by SIGKILL")

    def wait(async_output_id: str) -> Any:
        output = FakeExecutor.wait_output_ready(executor, async_output_id)
        if async_output_id == "r3":
            executor._answer_one(*executor.open.pop(0))  # one had arrived
            executor.die(death)
        return output

    executor.wait_output_ready = wait  # type: ignore[method-assign]
    run = Run(executor)
    run.runner.run(requests(10))
    assert run.outcome() == {0: "ok"}
    assert [request.value["n"] for request in run.runner.unfinished] == [1, 2]
    assert run.threads_left() == []


def test_an_error_like_the_executors_is_the_requests_while_the_executor_lives() -> None:
    def answer(request: Any) -> Any:
        raise WorkerDiedError("a worker of the request's own")

    run = Run(FakeExecutor(answer))
    run.runner.run(requests(2))
    assert run.outcome() == {0: "forward", 1: "forward"}


def test_an_output_that_does_not_come_fails_its_request() -> None:
    executor = FakeExecutor(lambda request: request)
    lost = []

    def wait(async_output_id: str) -> Any:
        if async_output_id == "r2":  # its forward ends, and nothing else comes
            _, computed, output = executor.open.pop()
            computed.set_result(None)
            lost.append(output)
            return output
        return FakeExecutor.wait_output_ready(executor, async_output_id)

    executor.wait_output_ready = wait  # type: ignore[method-assign]
    run = Run(executor, output_timeout=0.2)
    run.runner.run(requests(4))
    assert run.outcome() == {0: "ok", 1: "copy", 2: "ok", 3: "ok"}
    assert "OMNI_ASYNC_OUTPUT_TIMEOUT" in str(next(e.error for e in run.ended if not e.ok))
    assert executor.given_up == ["r2"]
    assert lost[0].cancelled()


def test_a_stop_submits_nothing_more_and_gives_the_grace() -> None:
    executor = FakeExecutor(lambda request: request, hold=2)
    run = Run(executor, in_flight=2)
    submit = executor.submit

    def stopping(request: Any) -> Any:
        if request["n"] == 3:  # with 2 it is open, and both stand before their answer
            executor._hold = 100
            run.runner.stop()
            run.runner.stop()
        return submit(request)

    executor.submit = stopping  # type: ignore[method-assign]
    run.runner.run(requests(10))
    assert executor.shutdowns == [1.5]
    assert run.stops == 1
    assert sorted(run.outcome()) + sorted(r.value["n"] for r in run.runner.unfinished) == [
        0,
        1,
        2,
        3,
    ]


def test_it_keeps_no_output() -> None:
    alive: list[weakref.ref[Output]] = []
    counts: list[int] = []

    def answer(request: Any) -> Output:
        counts.append(sum(reference() is not None for reference in alive))
        output = Output()
        alive.append(weakref.ref(output))
        return output

    run = Run(FakeExecutor(answer), in_flight=1)
    run.runner.run(requests(20))
    assert max(counts) <= 1
    assert not any(reference() for reference in alive)


def test_results_that_cannot_be_written_end_the_run() -> None:
    def refuse(ended: Ended) -> None:
        raise JobError("results.jsonl cannot be written")

    run = Run(FakeExecutor(lambda request: request), on_end=refuse)
    with pytest.raises(JobError, match="cannot be written"):
        run.runner.run(requests(10))
    assert run.threads_left() == []
