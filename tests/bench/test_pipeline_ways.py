"""The ways of `pipeline`: how many requests are in flight, and what is checked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from omni_platforms.bench import pipeline, pipeline_rig
from omni_platforms.bench import pipeline_grid as grid
from omni_platforms.bench.common_worker import QUEUE_WAY, CommonWorker
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forwards import Forward, Request, Work
from omni_platforms.bench.pipeline_ways import Blocking, Consumer, Executor
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.platform.cpu import CpuPlatform

HERE = torch.device("cpu")
SIZE = 40_000
WORK = Work("tiny", 1)


@pytest.fixture(params=["on a thread", "here"])
def consumer(request: pytest.FixtureRequest) -> Iterator[Consumer]:
    if request.param == "here":
        yield Consumer()
        return
    with ThreadPoolExecutor(1) as thread:
        yield Consumer(thread)


def requests(count: int) -> list[Request]:
    return [Request(number, WORK, SIZE) for number in range(1, count + 1)]


class Counted(Blocking):
    """A way that counts what is started and not finished."""

    def __init__(self) -> None:
        super().__init__(Forward(CpuPlatform(), HERE))
        self.open = self.most = 0
        self.order: list[str] = []
        self._lock = threading.Lock()

    def start(self, request: Request) -> torch.Tensor:
        with self._lock:
            self.open += 1
            self.most = max(self.most, self.open)
            self.order.append(f"start {request.number}")
        return super().start(request)

    def finish(self, started: torch.Tensor) -> torch.Tensor:
        with self._lock:
            self.open -= 1
            self.order.append("finish")
        return started


def test_one_at_a_time_means_one(consumer: Consumer) -> None:
    way = Counted()
    assert consumer.seconds("a way", way, requests(4), 1) > 0
    assert way.most == 1
    assert way.order == [word for number in range(1, 5) for word in (f"start {number}", "finish")]


def test_a_queue_is_full_and_never_overfull() -> None:
    way = Counted()
    Consumer().seconds("a way", way, requests(21), 8)
    assert (way.most, way.open) == (8, 0)


def test_a_queue_on_a_thread_waits_for_its_oldest_request() -> None:
    class Held(Counted):
        """Finishes its second request, the first of the queue, when the queue is full."""

        held = 0

        def finish(self, started: torch.Tensor) -> torch.Tensor:
            self.held += 1
            limit = time.monotonic() + 60
            while self.held == 2 and self.open < 8 and time.monotonic() < limit:
                time.sleep(0.001)
            return super().finish(started)

    way = Held()
    with ThreadPoolExecutor(1) as thread:
        Consumer(thread).seconds("a way", way, requests(21), 8)
    assert (way.most, way.open) == (8, 0)


class Late(Blocking):
    """A way that gives the output of the request before."""

    before: torch.Tensor | None = None

    def finish(self, started: torch.Tensor) -> torch.Tensor:
        self.before, found = started, self.before
        return started if found is None else found


class Spoiled(Blocking):
    """A way that changes one byte, between those that are read inside the clock."""

    def finish(self, started: torch.Tensor) -> torch.Tensor:
        started[5] ^= 1
        return started


@pytest.mark.parametrize("wrong", [Late, Spoiled])
@pytest.mark.parametrize("in_flight", [1, 8])
def test_a_way_that_moves_a_wrong_byte_gives_no_time(
    consumer: Consumer, wrong: type[Blocking], in_flight: int
) -> None:
    way = wrong(Forward(CpuPlatform(), HERE))
    with pytest.raises(BenchError, match="a way"):
        consumer.seconds("a way", way, requests(10), in_flight)


def test_the_executor_is_a_way(consumer: Consumer) -> None:
    with AsyncOutputExecutor(CpuPlatform()) as outputs:
        way = Executor(Forward(CpuPlatform(), HERE), outputs)
        assert consumer.seconds("a way", way, requests(12), 8) > 0
        assert outputs.stats().resolved == 12


# The processes -------------------------------------------------------------------


def segments() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.glob("psm_*")} if folder.is_dir() else set()


def test_a_dead_worker_of_the_common_path_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    before = segments()
    with CommonWorker(0) as worker:
        (request,) = requests(1)
        worker.send(request)
        right = Forward(CpuPlatform(), HERE)(request)
        assert torch.equal(worker.receive(), right)
        worker.send(replace(request, way=QUEUE_WAY))
        assert torch.equal(worker.receive_queued(), right)
        worker.send(Request(3, WORK, 3))  # no multiple of four: the forward fails, and with it all
        with pytest.raises(BenchError, match="common ways died"):
            worker.receive()
        with pytest.raises(BenchError, match="common ways died"):
            worker.receive_queued()
    assert segments() <= before


def test_every_cell_has_a_row_for_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_PLATFORM", "cpu")
    cells = [grid.Cell(0.0005, SIZE), grid.Cell(0.0005, 2 * SIZE, "tiny")]
    monkeypatch.setattr(pipeline, "cells", lambda *_: cells)
    monkeypatch.setattr(pipeline, "_FEWEST_ROUNDS", 1)
    said: list[str] = []
    bench = Bench(CpuPlatform(), HERE, rounds=1, quick=True, progress=said.append)
    before = segments()
    rows = pipeline.run(bench)
    assert segments() <= before
    queue = [name for names in grid.PARTS.values() for name in names]
    single = [name for name in queue if name not in (grid.COPY, grid.WORKER_ALONE)]
    assert [row.way for row in rows] == [*queue, *single] * 2
    assert {row.rounds for row in rows} == {1}
    assert all(row.seconds > 0 for row in rows)
    assert len(said) == 2


@pytest.mark.parametrize(("free", "measured"), [(None, True), (9001, True), (9000, False)])
def test_the_common_path_is_left_out_where_its_segments_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, free: int | None, measured: bool
) -> None:
    monkeypatch.setattr(pipeline_rig, "room_for_segments", lambda: free)
    bench = Bench(CpuPlatform(), HERE, rounds=1)
    assert pipeline_rig.room_for_queue(bench, 1000) == measured
    assert len(bench.warnings) == (not measured)
