"""What an executor and its worker hold: an output's pages once, and none that nothing needs."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms import MultiprocExecutor, SegmentRefusedError, WorkerAsleepError
from omni_platforms.engine.crew import Crew
from omni_platforms.engine.messages import Call
from tests.engine.fakes import PATIENCE, Pair

pytestmark = pytest.mark.xdist_group("engine_memory")  # they share a process, and measure memory

MB = 1 << 20
CAP = 160 * MB
BESIDES = 64 * MB
"""What may be used besides the leased bytes."""


@pytest.fixture(scope="module")
def shared() -> Iterator[MultiprocExecutor]:
    _others.update(segments_of("self"))
    with MultiprocExecutor(
        "tests.engine.workers:Worker", 1, "cpu", arena_cap=CAP, arena_segment_bytes=8 * MB,
        arena_initial_bytes=8 * MB, output_timeout=PATIENCE, when_full="raise",
    ) as executor:  # fmt: skip
        yield executor


@pytest.fixture
def executor(shared: MultiprocExecutor) -> Iterator[MultiprocExecutor]:
    """An executor whose worker is warm, and has no memory of what came before."""
    output(shared, 1)
    gc.collect()
    shared.trim()
    yield shared
    gc.collect()
    shared.trim()
    assert (own_mappings(), worker_mappings(shared)) == (0, 0)


def output(executor: MultiprocExecutor, megabytes: int, value: float = 1.0) -> torch.Tensor:
    done = executor.execute_model(("fill", (value, megabytes * MB // 4)))
    result = executor.wait_output_ready(done.async_output_id).result(PATIENCE)
    assert isinstance(result, torch.Tensor)
    return result


def segments_of(pid: int | str) -> set[str]:
    """Return the files of arenas that a process has mapped: what both ends see of them."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "/memfd:omni" in line}


_others: set[str] = set()
"""What this process had mapped before there was the executor: other executors' segments."""


def own_mappings() -> int:
    """Return how many segments of the shared executor this process has mapped."""
    return len(segments_of("self") - _others)


def worker_mappings(executor: MultiprocExecutor) -> int:
    """Return how many segments the worker has mapped."""
    (pid,) = [process.pid for process in executor._engine.crew.workers.values()]
    return len(segments_of(pid))


# Giving back ------------------------------------------------------------------------------------


def test_a_large_output_finds_room_where_small_ones_were(executor: MultiprocExecutor) -> None:
    kept = [output(executor, 8, value=number) for number in range(20)]
    assert own_mappings() == 20
    del kept[1:]
    assert output(executor, 120, value=5).eq(5).all()
    assert kept[0].eq(0).all()
    assert own_mappings() < 20, "the parent has unmapped what the worker gave back"


def test_a_sleep_frees_shared_memory_and_waking_up_has_it_again(
    executor: MultiprocExecutor,
) -> None:
    held = [output(executor, 8, value=number) for number in range(3)]
    del held[1:]
    assert executor.sleep(3, free_shared_memory=True) == [3], "the worker's own answer"
    assert (own_mappings(), worker_mappings(executor)) == (1, 1), "what is held is kept"
    with pytest.raises(WorkerAsleepError):
        executor.submit(1)
    executor.wake_up()
    assert worker_mappings(executor) > 1, "the next request need not grow the arena"
    assert held[0].eq(0).all()
    executor.sleep()
    before = worker_mappings(executor)
    executor.wake_up()
    assert worker_mappings(executor) == before, "nothing is freed that was not asked for"


def test_planted_a_parent_that_does_not_look_keeps_its_mappings(
    executor: MultiprocExecutor,
) -> None:
    output(executor, 8)
    with mock.patch.object(Crew, "refresh_views"):
        executor.trim()
    assert (own_mappings(), worker_mappings(executor)) == (1, 0)


def test_a_worker_that_cannot_have_its_memory_again_still_sleeps(
    executor: MultiprocExecutor,
) -> None:
    output(executor, 8)
    executor.collective_rpc("limit_memory", args=(MB,), timeout=PATIENCE)
    executor.sleep(free_shared_memory=True)
    with pytest.raises(SegmentRefusedError, match="EFBIG"):
        executor.wake_up()
    with pytest.raises(WorkerAsleepError):
        executor.submit(1)
    executor.collective_rpc("limit_memory", args=(0,), timeout=PATIENCE)
    assert executor.wake_up() == ["awake"]
    assert output(executor, 8, value=2).eq(2).all()


def test_a_trim_is_behind_what_was_asked_and_views_follow(pair: Pair) -> None:
    executor, worker = pair
    executor._ask.call("method")
    answered = [worker.hear(Call).id]

    def answer() -> Any:
        call = worker.answer(7)
        answered.append(call.method)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    assert executor.trim(PATIENCE) == [7]
    thread.join(PATIENCE)
    assert answered[1:] == ["omni.trim"]
    assert worker.view.refreshed == 1


# No second copy ---------------------------------------------------------------------------------


SIZES = [8, 8, 8, 24, 96]  # the largest last, when the most is leased
LINUX = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")


def status(pid: int, name: str) -> int:
    """Return a number of bytes from a process's status."""
    found = re.search(
        rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE
    )
    assert found
    return int(found[1]) << 10


def peaks_over_idle(executor: MultiprocExecutor) -> tuple[int, int]:
    """Take outputs of `SIZES` and hold them; return the peaks of worker and consumer over idle.

    Shared pages count in both, so that no more than the leased bytes may be in either. The
    "device" of the worker is this machine's memory, too: one output of it counts besides.
    """
    (process,) = executor._engine.crew.workers.values()
    both = (process.pid, os.getpid())
    idle = [status(pid, "VmRSS") for pid in both]
    for pid in both:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is from now on
    held = [output(executor, size, value=size) for size in SIZES]
    worker, consumer = [status(pid, "VmHWM") - was for pid, was in zip(both, idle, strict=True)]
    assert [float(result[-1]) for result in held] == SIZES
    return worker - max(SIZES) * MB, consumer


ALLOWED = sum(SIZES) * MB + BESIDES


@LINUX
def test_neither_process_has_a_second_copy_at_any_time(executor: MultiprocExecutor) -> None:
    worker, consumer = peaks_over_idle(executor)
    assert sum(SIZES) * MB - MB <= consumer <= ALLOWED, "and the peak is one"
    assert worker <= ALLOWED


@LINUX
def test_planted_a_copy_in_the_worker_is_seen(executor: MultiprocExecutor) -> None:
    executor.collective_rpc("make_copies", args=(True,), timeout=PATIENCE)
    worker, consumer = peaks_over_idle(executor)
    executor.collective_rpc("make_copies", args=(False,), timeout=PATIENCE)
    assert worker > ALLOWED
    assert consumer <= ALLOWED


@LINUX
def test_planted_a_copy_in_the_consumer_is_seen(
    executor: MultiprocExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    (process,) = executor._engine.crew.workers.values()
    unpack = process.view.unpack
    monkeypatch.setattr(process.view, "unpack", lambda packet: unpack(packet).clone())
    worker, consumer = peaks_over_idle(executor)
    assert worker <= ALLOWED
    assert consumer > ALLOWED
