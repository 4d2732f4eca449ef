"""Small outputs that wait for company: under every schedule, and with each protection removed."""

from __future__ import annotations

import concurrent.futures
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.errors import CaptureError
from omni_platforms.outputs import AsyncOutputExecutor, Phase
from omni_platforms.outputs import batch as batch_module
from omni_platforms.outputs import habit as habit_module
from omni_platforms.outputs.batch import Batches, Group
from omni_platforms.outputs.habit import COMPANY, Habit
from omni_platforms.simulator import Simulation
from tests.simulated import NAME, seeds

Scenario = Callable[[Simulation], None]


@pytest.fixture(autouse=True)
def _company_of_four_from_the_start() -> Iterator[None]:
    with (
        mock.patch.object(habit_module, "_PATIENCE", 0),
        mock.patch.object(batch_module, "COMPANY", 4),
    ):
        yield


def _small(i: int, n: int = 64) -> torch.Tensor:
    return torch.full((n,), float(i), device=NAME) * 2


def many_of_several_kinds(sim: Simulation) -> None:
    """Shapes and nests differ; memory is used again at once; the results come last."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = []
        for i in range(10):
            futures.append(outputs.submit({"ids": _small(i, 8 + i % 2), "more": [_small(i), i]}))
            torch.full((64,), 99.0, device=NAME)
        for i, future in enumerate(futures):
            result = future.result(10)
            assert result["ids"].tolist() == [2.0 * i] * (8 + i % 2), "CORRUPT"
            assert result["more"][0].tolist() == [2.0 * i] * 64, "CORRUPT"
            assert result["more"][1] == i


def kept_while_others_come(sim: Simulation) -> None:
    """Results of one batch are kept while the next batch uses its staging buffer."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        results = []
        for batch in range(3):
            futures = [outputs.submit(_small(4 * batch + i)) for i in range(4)]
            results += [future.result(10) for future in futures]
        for i, result in enumerate(results):
            assert result.tolist() == [2.0 * i] * 64, "CORRUPT"


def asked_on_another_stream(sim: Simulation) -> None:
    """The only output of its batch is asked for when another stream is current."""
    platform = sim.platform
    with AsyncOutputExecutor(platform) as outputs:
        with platform.stream_context(platform.create_side_stream()):
            future = outputs.submit(_small(3))
        assert future.result().tolist() == [6.0] * 64, "CORRUPT"


def asked_by_another_thread(sim: Simulation) -> None:
    """A batch is begun on a side stream by one thread, and asked for by another."""
    platform = sim.platform
    with AsyncOutputExecutor(platform) as outputs:
        with platform.stream_context(platform.create_side_stream()):
            futures = [outputs.submit(_small(i)) for i in range(2)]
        results: list[Any] = []
        asker = threading.Thread(target=lambda: results.extend(f.result(10) for f in futures))
        asker.start()
        asker.join()
        for i, result in enumerate(results):
            assert result.tolist() == [2.0 * i] * 64, "CORRUPT"
        assert len(results) == 2


def two_streams_in_turn(sim: Simulation) -> None:
    """Outputs of two streams cannot share a batch."""
    platform = sim.platform
    streams = [platform.create_side_stream(), platform.create_side_stream()]
    with AsyncOutputExecutor(platform) as outputs:
        futures = []
        for i in range(6):
            with platform.stream_context(streams[i % 2]):
                futures.append(outputs.submit(_small(i)))
        for i, future in enumerate(futures):
            assert future.result(10).tolist() == [2.0 * i] * 64, "CORRUPT"


def drained(sim: Simulation) -> None:
    """`drain` does not leave a batch open."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        sources = [_small(i) for i in range(3)]
        futures = [outputs.submit(source) for source in sources]
        outputs.drain()
        for source in sources:
            source.fill_(9.0)
        for i, future in enumerate(futures):
            assert future.result(10).tolist() == [2.0 * i] * 64, "CORRUPT"


SCENARIOS = [
    many_of_several_kinds, kept_while_others_come, asked_on_another_stream,
    asked_by_another_thread, two_streams_in_turn, drained,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_no_schedule_corrupts_an_output(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(sim), seeds=seeds(30))
    assert found.ok, str(found)


def _record_before(self: Any, batch: Any) -> None:
    early = self._platform.record_device_event(batch.stream)
    outputs = batch.outputs
    _copy_together(self, batch)
    for pending in outputs:
        pending.done = early


def _views(self: Any, small: Any) -> None:
    if self._staging is not None:
        self._values = list(self._staging.unbind())
        small.shelve(self._staging)
        self._staging = None


def _close_here(self: Any, batch: Any) -> None:
    if self._open is batch:
        batch.stream = self._platform.current_stream(self._device)
        self._start(batch)


_copy_together = Batches._copy_together

MUTATIONS: dict[str, tuple[Scenario, Any, str, Any]] = {
    "the event of a batch is recorded before its copy": (
        many_of_several_kinds, Batches, "_copy_together", _record_before),
    "the results are views of the staging buffer": (
        kept_while_others_come, Group, "arrive", _views),
    "the copy is made on the stream of whoever asks": (
        asked_by_another_thread, Batches, "close", _close_here),
    "all streams look alike": (
        asked_on_another_stream, "platform", "current_stream_key", lambda *args: 1),
    "outputs of two streams share a batch": (
        two_streams_in_turn, "platform", "current_stream_key", lambda *args: 1),
}  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_protection_is_needed(sim: Simulation, mutation: str) -> None:
    scenario, owner, name, wrong = MUTATIONS[mutation]
    owner = type(sim.platform) if owner == "platform" else owner
    with mock.patch.object(owner, name, wrong):
        found = sim.explore(lambda: scenario(sim), seeds=seeds(20))
    seen = [failure for failure in found.failures if "CORRUPT" in str(failure.error)]
    assert seen, f"{mutation}: no schedule of {scenario.__name__} shows wrong bytes: {found}"


def test_nothing_is_enqueued_before_the_company_is_complete(sim: Simulation) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        sources = [_small(i) for i in range(4)]
        with mock.patch.object(Batches, "_start", autospec=True, side_effect=_start) as start:
            futures = [outputs.submit(source) for source in sources[:3]]
            assert not start.called
            assert [line.phase for line in outputs.describe_pending()] == [Phase.GATE] * 3
            futures.append(outputs.submit(sources[3]))
            assert start.call_count == 1
        assert [f.result(10).tolist() for f in futures] == [[2.0 * i] * 64 for i in range(4)]


_start = Batches._start


def _check_private(sim: Simulation, n: int) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        results = [f.result(10) for f in [outputs.submit(_small(i, n)) for i in range(4)]]
        results[0].fill_(7.0)
        for i, result in enumerate(results[1:], 1):
            assert result.tolist() == [2.0 * i] * n
            assert result.untyped_storage().nbytes() == n * 4
            assert not result.is_pinned()


@pytest.mark.parametrize("n", [64, batch_module.LATE_BYTES // 4 + 1], ids=["late", "at once"])
def test_results_are_private_and_unpinned(sim: Simulation, n: int) -> None:
    sim.reset("lazy")
    _check_private(sim, n)


def test_views_of_what_arrived_would_not_be_private(sim: Simulation) -> None:
    sim.reset("lazy")
    views = mock.patch.object(Group, "value", lambda self, at: self._block[at])
    with views, pytest.raises(AssertionError):
        _check_private(sim, 64)


def test_device_memory_is_let_go_when_a_batch_has_arrived(sim: Simulation) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        sources = [_small(i) for i in range(4)]
        alive = [weakref.ref(source) for source in sources]
        futures = [outputs.submit(source) for source in sources]
        del sources
        assert futures[0].result(10).tolist() == [0.0] * 64
        assert [ref() for ref in alive] == [None] * 4
        assert futures[3].result(10).tolist() == [6.0] * 64


def test_a_nest_is_made_once_by_whoever_asks_first(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = [outputs.submit({"ids": _small(i)}) for i in range(4)]
        outputs.drain()
        results: list[Any] = []
        threads = [
            threading.Thread(target=lambda: results.append(futures[1].result(10))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        assert all(result is results[0] for result in results)
        assert results[0]["ids"].tolist() == [2.0] * 64


def test_an_error_while_a_result_is_made_is_that_outputs(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = [outputs.submit(_small(i)) for i in range(4)]
        outputs.drain()
        full = mock.patch.object(Group, "value", side_effect=MemoryError("full"))
        with full, pytest.raises(MemoryError, match="full"):
            futures[1].result(10)
        assert isinstance(futures[1].exception(10), MemoryError)
        assert futures[2].result(10).tolist() == [4.0] * 64


def test_an_interrupted_making_can_be_repeated(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = [outputs.submit(_small(i)) for i in range(4)]
        outputs.drain()
        interrupted = mock.patch.object(Group, "value", side_effect=KeyboardInterrupt)
        with interrupted, pytest.raises(KeyboardInterrupt):
            futures[1].result(10)
        assert futures[1].result(10).tolist() == [2.0] * 64


def test_who_listens_late_gets_the_value(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = [outputs.submit(_small(i)) for i in range(4)]
        outputs.drain()
        done, _ = concurrent.futures.wait(futures, timeout=10)
        assert done == set(futures)
        heard: list[Any] = []
        futures[2].add_done_callback(lambda future: heard.append(future.result()))
        assert heard[0].tolist() == [4.0] * 64
        assert not futures[2].cancel()


def test_a_lone_output_is_copied_with_a_blocking_call(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        with mock.patch.object(Batches, "_start", side_effect=AssertionError):
            assert outputs.submit([_small(4), "x"]).result()[0].tolist() == [8.0] * 64
        assert outputs.stats().resolved == 1
        assert outputs.stats().pending == 0


def test_an_interrupted_blocking_copy_stays_in_flight(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        future = outputs.submit(_small(4))
        with (
            mock.patch.object(torch.Tensor, "to", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            future.result()
        assert future.result(10).tolist() == [8.0] * 64


def test_a_failed_stack_falls_back_to_one_copy_each(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        with mock.patch.object(Group, "start", side_effect=RuntimeError("out of memory")):
            futures = [outputs.submit(_small(i)) for i in range(4)]
        assert [f.result(10).tolist() for f in futures] == [[2.0 * i] * 64 for i in range(4)]


def test_listeners_are_served_without_a_request(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        arrived = threading.Event()
        future = outputs.submit(_small(1))
        future.add_done_callback(lambda done: arrived.set())
        assert arrived.wait(10)


def test_polling_done_comes_to_an_end(sim: Simulation) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        future = outputs.submit(_small(1))
        for _ in range(1000):
            if future.done():
                break
        assert future.done()


def test_a_borrowed_output_never_waits(sim: Simulation) -> None:
    sim.reset("lazy")
    with AsyncOutputExecutor(sim.platform) as outputs:
        static = torch.zeros(8, device=NAME)
        futures = []
        for i in range(3):
            static.fill_(i)
            futures.append(outputs.submit(static, borrow=True))
        assert [f.result(10)[0].item() for f in futures] == [0.0, 1.0, 2.0]


def test_no_batch_is_closed_inside_a_capture_guard(sim: Simulation) -> None:
    with AsyncOutputExecutor(sim.platform) as outputs:
        future = outputs.submit(_small(1))
        with outputs.capture_guard():
            assert not future.done()
            with pytest.raises(CaptureError):
                future.result()
        assert future.result(10).tolist() == [2.0] * 64


# The habit --------------------------------------------------------------------


@pytest.fixture
def habit() -> Iterator[Habit]:
    with mock.patch.object(habit_module, "_PATIENCE", 64):
        yield Habit()


def _submitted(habit: Habit, first: int, count: int) -> list[bool]:
    return [habit.may_wait(number) for number in range(first, first + count)]


def test_outputs_wait_once_nobody_asked_for_a_while(habit: Habit) -> None:
    assert _submitted(habit, 0, 80) == [False] * 64 + [True] * 16


def test_one_early_question_ends_it(habit: Habit) -> None:
    _submitted(habit, 0, 100)
    habit.asked(98)
    assert _submitted(habit, 100, 65) == [False] * 64 + [True]


def test_the_newest_and_the_old_may_be_asked_for(habit: Habit) -> None:
    _submitted(habit, 0, 100)
    habit.asked(99)
    habit.asked(99 - COMPANY)
    assert habit.may_wait(100)


@given(lag=st.integers(1, COMPANY - 1))
def test_who_asks_with_a_lag_never_meets_a_waiting_output(lag: int) -> None:
    with mock.patch.object(habit_module, "_PATIENCE", 64):
        habit = Habit()
        for number in range(300):
            assert not habit.may_wait(number)
            if number >= lag:
                habit.asked(number - lag)
