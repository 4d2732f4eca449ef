"""How an executor starts and ends: parameters, starts that fail, shutdowns, the collector."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest

from omni_platforms import (
    ExecutorClosedError,
    MultiprocExecutor,
    SettingError,
    UnsendableError,
    WorkerStartError,
    WorkerSurvivedError,
)
from omni_platforms.engine import crew as crew_module
from omni_platforms.engine.messages import Kind, Setup, Started, Stop
from tests.engine.fakes import PATIENCE, FakeWorker, Pair, executor_of, until

# Parameters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["OMNI_ASYNC_OUTPUT_TIMEOUT", "OMNI_WORKER_START_TIMEOUT"])
@pytest.mark.parametrize("value", ["", "abc", "0", "-1", "nan", "inf"])
def test_a_bad_timeout_is_refused_at_the_start_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingError, match=name), executor_of(monkeypatch):
        pass


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"num_workers": 0}, "num_workers"),
        ({"window": 0}, "window is at least 1"),
        ({"max_in_flight": 0}, "max_in_flight is at least 1"),
        ({"mode": "both"}, "mode is one of data_parallel, lockstep"),
        ({"when_full": "drop"}, "when_full"),
        ({"output_rank": 1}, "output_rank 1 is no rank"),
        ({"devices": [0, 1]}, "1 workers need as many devices"),
        ({"output_timeout": float("inf")}, "output_timeout"),
        ({"start_timeout": 0}, "start_timeout"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_started(
    options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        MultiprocExecutor("nobody:Worker", **options)


def test_a_config_that_does_not_pickle_is_refused() -> None:
    with pytest.raises(UnsendableError):
        MultiprocExecutor("nobody:Worker", config=lambda: None)


def test_every_parameter_reaches_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def start(*arguments: Any) -> Any:
        asked.extend(arguments)
        raise WorkerStartError("not today")

    monkeypatch.setattr("omni_platforms.engine.executor.start_processes", start)
    with pytest.raises(WorkerStartError):
        MultiprocExecutor(
            "my.module:Worker",
            2,
            "cpu",
            {"a": 1},
            mode="lockstep",
            output_rank=1,
            devices=[4, 6],
            environment={"KEY": "value"},
            start_timeout=7.0,
            arena_cap=1,
            arena_segment_bytes=2,
            arena_initial_bytes=3,
            when_full="raise",
            max_in_flight=7,
        )
    setups, platform, environment, timeout = asked
    assert (platform, environment, timeout) == ("cpu", {"KEY": "value"}, 7.0)
    for rank, setup in enumerate(setups):
        assert isinstance(setup, Setup)
        assert (setup.worker, setup.config.load()) == ("my.module:Worker", {"a": 1})
        assert (setup.rank, setup.world_size, setup.device_index) == (rank, 2, 4 + 2 * rank)
        assert setup.delivers == (rank == 1)
        assert (setup.arena_cap, setup.arena_segment_bytes) == (1, 2)
        assert setup.arena_initial_bytes == (3 if rank == 1 else 0), "the other one has no outputs"
        assert setup.arena_shares == 1
        assert setup.block_when_full is False
        assert setup.max_in_flight == 7


# Starts that fail -------------------------------------------------------------------------------


class Starting(FakeWorker):
    """A process that comes up, hangs until it is killed, or fails."""

    all: list[Starting]

    def __init__(self, setup: Setup, *_: Any) -> None:
        super().__init__(setup.rank)
        self.closed = False
        Starting.all.append(self)

    def wait_started(self, timeout: float | None) -> Started:
        if self.rank == 1:
            raise WorkerStartError("worker 1 died")
        assert self._dead.wait(PATIENCE), "nobody ended it"
        raise WorkerStartError("worker 0 was killed")

    def close(self) -> None:
        super().close()
        self.theirs.close()
        self.closed = True


def test_one_worker_that_does_not_start_takes_the_others_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Starting.all = []
    monkeypatch.setattr(crew_module, "WorkerProcess", Starting)
    started = time.monotonic()
    with pytest.raises(WorkerStartError, match="worker 1 died"):
        MultiprocExecutor("nobody:Worker", 3)
    assert time.monotonic() - started < 5, "noticed at once, though another one hangs"
    assert [process.is_alive() for process in Starting.all] == [False] * 3
    assert all(process.closed for process in Starting.all)


# Ends -------------------------------------------------------------------------------------------


def test_shutdown_asks_behind_everything_that_was_asked(pair: Pair) -> None:
    executor, worker = pair
    executor._ask.call("method")

    def work() -> None:
        kinds.append(worker.theirs.receive(PATIENCE).kind)
        stop = worker.hear(Stop)
        kinds.append(stop.kind)
        worker.end()

    kinds: list[Kind] = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    executor.shutdown(PATIENCE)
    thread.join(PATIENCE)
    assert kinds == [Kind.CALL, Kind.STOP]
    executor.shutdown()
    assert executor.failure is not None
    with pytest.raises(ExecutorClosedError, match="shut down"):
        executor.collective_rpc("method")


def test_an_output_that_arrived_can_be_waited_for_after_shutdown(pair: Pair) -> None:
    executor, worker = pair
    name = executor.submit("request").async_output_id
    worker.begin()
    worker.computed(name)
    worker.output(name, "out")
    until(lambda: worker.view.unpacked)
    executor.shutdown(0.0)
    assert executor.wait_output_ready(name).result() == "out"


class Immortal(FakeWorker):
    """Ends on nothing, as a process that a driver holds."""

    mortal = False

    def die(self) -> None:
        if self.mortal:
            super().die()


def test_a_process_that_cannot_be_ended_is_named_and_can_be_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("omni_platforms.engine.process._KILL_GRACE_S", 0.01)
    monkeypatch.setattr("omni_platforms.engine.lifecycle._TERM_GRACE_S", 0.01)
    monkeypatch.setattr("tests.engine.fakes.FakeWorker", Immortal)
    with executor_of(monkeypatch) as (executor, (worker,)):
        future = executor.submit("request")
        with pytest.raises(WorkerSurvivedError, match=r"worker 0 \(pid 100\)"):
            executor.shutdown(0.0)
        assert isinstance(future.exception(PATIENCE), ExecutorClosedError)
        worker.mortal = True
        executor.shutdown(0.0)
        assert not worker.is_alive()


def test_shutdown_in_a_callback_ends_and_does_not_wait_for_itself(pair: Pair) -> None:
    executor, worker = pair
    ended = threading.Event()

    def end(_: Any) -> None:
        executor.shutdown(PATIENCE)
        ended.set()

    executor.submit("request").add_done_callback(end)
    worker.computed(worker.begin())
    assert ended.wait(PATIENCE)
    assert not worker.is_alive()


def test_an_executor_that_nobody_holds_ends_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker()
    monkeypatch.setattr(
        "omni_platforms.engine.executor.start_processes", lambda *_: ([worker], [Started()])
    )
    executor = MultiprocExecutor("nobody:Worker")
    future = executor.submit("request")
    reference = weakref.ref(executor)
    del executor
    gc.collect()
    assert reference() is None
    assert isinstance(future.exception(PATIENCE), ExecutorClosedError)
    until(lambda: not worker.is_alive())
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("omni-end")])


def test_a_callback_of_a_failure_that_fails_harms_no_other(pair: Pair) -> None:
    executor, worker = pair
    called: list[BaseException] = []

    def fail(cause: BaseException) -> None:
        raise ZeroDivisionError

    executor.on_failure(fail)
    executor.on_failure(called.append)
    worker.die()
    until(lambda: called)
    until(lambda: executor._engine._ended)


# Memory and time --------------------------------------------------------------------------------


class Big:
    """Stands for an output of gigabytes."""


def test_an_idle_executor_keeps_no_output(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    executor, worker = pair
    references = []

    def unpack(packet: Any) -> Big:
        big = Big()
        references.append(weakref.ref(big))
        return big

    monkeypatch.setattr(worker.view, "unpack", unpack)
    gc.collect()
    gc.disable()
    try:
        for how in ("awaited", "arrived", "dropped"):
            name = executor.submit("request").async_output_id
            worker.begin()
            waiting = executor.wait_output_ready(name) if how == "awaited" else None
            worker.computed(name)
            worker.output(name)
            until(lambda: not executor._ask.board.ledger.missing())
            if how == "dropped":
                assert executor.drop_output(name)
            else:
                waiting = waiting or executor.wait_output_ready(name)
                assert isinstance(waiting.result(PATIENCE), Big)
            del waiting
            until(lambda: references[-1]() is None)
    finally:
        gc.enable()
    assert len(references) == 3


def test_an_idle_executor_takes_no_time(pair: Pair) -> None:
    executor, _ = pair
    executor.check_health()
    started, cpu = time.monotonic(), time.process_time()
    threading.Event().wait(0.5)
    used = (time.process_time() - cpu) / (time.monotonic() - started)
    assert used < 0.02
