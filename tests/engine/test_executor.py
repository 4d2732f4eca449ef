"""The contract of an executor with two real workers, which serve all tests of this module.

Run against processes of this host, and against Ray's, on which no test here knows the difference.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from omni_platforms import (
    ExecutorForkedError,
    MultiprocExecutor,
    OutputDroppedError,
    UnknownOutputError,
)
from omni_platforms.engine import Output
from omni_platforms.engine.interface import Executor
from omni_platforms.shm.lease import open_leases
from tests.engine.backends import backends, executor_on, store_bytes
from tests.engine.fakes import PATIENCE, until
from tests.shm.conftest import mappings, open_descriptors

MB = 1 << 20
ROOM: dict[str, Any] = {
    "arena_cap": 4 * MB,
    "arena_segment_bytes": MB,
    "arena_initial_bytes": MB,
    "output_timeout": PATIENCE,
}


_others: list[int] = []
"""Bytes that this process had mapped before the shared executor was made."""


@pytest.fixture(scope="module", params=backends("engine_executor", slow=("ray",)))
def shared(request: pytest.FixtureRequest) -> Iterator[Executor]:
    name = "tests.engine.workers:Worker"
    _others.append(_shared_bytes())  # of tests before these, in the same process
    with executor_on(request, request.param, name, 2, "cpu", **ROOM) as executor:
        yield executor
    _others.clear()


@pytest.fixture
def executor(shared: Executor) -> Iterator[Executor]:
    """The shared executor, which must be as well and as empty afterwards."""
    yield shared
    assert shared.check_health()
    gc.collect()
    until(lambda: not shared.describe_pending_state().unacknowledged)
    state = shared.describe_pending_state()
    assert (state.outputs, state.queued, dict(state.calls)) == ([], 0, {})
    assert open_leases() == 0


def output_of(executor: Executor, request: Any) -> Any:
    done = executor.execute_model(request)
    return executor.wait_output_ready(done.async_output_id).result()


def test_outputs_are_views_of_the_workers_pages(executor: Executor) -> None:
    image = output_of(executor, ("fill", (3, 100_000)))
    assert image.eq(3).all()
    assert open_leases() == 1
    row = image[10:20].numpy()
    del image
    gc.collect()
    assert open_leases() == 1
    row[:] = 1
    del row


def test_each_worker_says_who_it_is(executor: Executor) -> None:
    assert [worker.platform for worker in executor.workers] == ["cpu", "cpu"]
    facts = executor.collective_rpc("facts", timeout=PATIENCE)
    assert len({fact["pid"] for fact in facts}) == 2
    ranks = executor.collective_rpc("load", args=(1,), kwargs={"key": 2}, timeout=PATIENCE)
    assert [(r["rank"], r["args"], r["kwargs"]) for r in ranks] == [
        (0, (1,), {"key": 2}),
        (1, (1,), {"key": 2}),
    ]


def test_requests_are_shared_between_the_workers(executor: Executor, tmp_path: Path) -> None:
    """While one worker computes for long, the other serves the rest."""
    gate = str(tmp_path / "gate")
    long = executor.submit(("wait_for", gate))
    answers = [output_of(executor, n) for n in range(8)]
    assert answers == list(range(8))
    assert not long.done()
    Path(gate).touch()
    assert executor.wait_output_ready(long.result(PATIENCE).async_output_id).result() == gate


def test_an_error_is_the_requests_own_with_the_workers_traceback(
    executor: Executor,
) -> None:
    with pytest.raises(ValueError, match="no image") as caught:
        executor.execute_model(("fail", "image"))
    assert "do_fail" in str(caught.value.__cause__)
    with pytest.raises(KeyError, match="refused") as refused:
        executor.collective_rpc("refuse", timeout=PATIENCE)
    assert sorted(refused.value.rank_errors) == [0, 1]  # type: ignore[attr-defined]


def test_a_batch_is_split_and_a_bad_member_costs_only_itself(
    executor: Executor,
) -> None:
    done = executor.execute_model_batch({"x": 1, "yy": "bad", "zzz": 3})
    outputs = {name: executor.wait_output_ready(d.async_output_id) for name, d in done.items()}
    assert outputs["x"].result().eq(1).all()
    assert outputs["zzz"].result().eq(3).all()
    with pytest.raises(ValueError, match="this member only"):
        outputs["yy"].result()
    with pytest.raises(ArithmeticError, match="the whole batch"):
        executor.execute_model_batch({"x": "explode"})


def test_previews_of_a_slow_consumer_are_skipped(executor: Executor, tmp_path: Path) -> None:
    seen: list[int] = []

    def slow(preview: Any) -> None:
        assert preview.value.eq(preview.step).all()
        seen.append(preview.step)
        for step in range(1, 9):
            Path(f"{tmp_path}/{step}").touch()
        # The worker runs to its end while we are busy with the first.
        until(lambda: not executor._ask.board.previews)

    done = executor.execute_stepwise({"steps": 8, "between": f"{tmp_path}/"}, slow)
    assert seen[0] == 1
    assert done.step == 8
    assert done.skipped_previews > 0
    assert executor.wait_output_ready(done.async_output_id).result().eq(80).all()


def test_under_asyncio(executor: Executor) -> None:
    async def main() -> list[Any]:
        single = await executor.generate(("fill", (7, 9000)))
        items = [item async for item in executor.stream({"steps": 3})]
        many = [output.number async for output in executor.generate_many(range(30))]
        return [float(single[0]), items, sorted(many)]

    value, items, numbers = asyncio.run(main())
    assert value == 7
    assert isinstance(items[-1], Output)
    assert items[-1].value.eq(30).all()
    assert numbers == list(range(30))


def test_two_thousand_submits_with_random_aborts_leave_nothing(
    executor: Executor,
) -> None:
    chance = random.Random(5)
    _abort_some(executor, chance, 200)  # everything is as large as it gets
    before = _footprint(executor)
    counts = _abort_some(executor, chance, 2000)
    after = _footprint(executor)
    assert min(counts.values()) > 100, counts
    assert after[1:] == before[1:]
    grown = [now - then for now, then in zip(after[0], before[0], strict=True)]
    # Ray keeps the last calls of its actors in mind: after 4,000 it grows no more.
    slack = 5 * MB if isinstance(executor, MultiprocExecutor) else 10 * MB
    assert max(grown) < slack, f"the memory of the parent and its workers: {grown}"


def _footprint(executor: Executor) -> tuple[Any, ...]:
    """Return bytes, descriptors, mappings and records, once everything is idle."""
    gc.collect()
    until(lambda: not executor.describe_pending_state().unacknowledged)
    workers = executor.collective_rpc("facts", timeout=PATIENCE)
    counts = executor._ask.board.ledger.counts()
    return (
        [psutil.Process().memory_info().rss, *(fact["rss"] for fact in workers)],
        sorted(open_descriptors()),
        mappings(),
        {kind: count for kind, count in counts.items() if kind != "closed"},
        [fact["descriptors"] for fact in workers],
        open_leases(),
    )


def _abort_some(executor: Executor, chance: random.Random, count: int) -> Counter[str]:
    """Submit; give some up at a random moment, and take the others."""
    done: Counter[str] = Counter()
    for number in range(count):
        future = executor.submit(("fill", (number, 9000)))
        how = chance.choice(["queued", "computed", "arrived", "cancelled", "wanted", "wanted"])
        done[how] += 1
        name = future.async_output_id
        if how == "queued":
            executor._ask.give_up(name)
            continue
        if how != "cancelled":
            future.result(PATIENCE)
        waiting = executor.wait_output_ready(name)
        if how == "cancelled":
            waiting.cancel()
        elif how == "computed":
            executor._ask.give_up(name)
        else:
            output = waiting.result(PATIENCE)
            assert output[0] == number
    return done


def test_many_threads_abort_and_take_at_once(executor: Executor) -> None:
    counts: list[Counter[str]] = []
    threads = [
        threading.Thread(
            target=lambda seed=seed: counts.append(_abort_some(executor, random.Random(seed), 150))
        )
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [count.total() for count in counts] == [150] * 4, "each got what it wanted, or failed"


def test_a_late_wait_on_an_aborted_output_fails_at_once(executor: Executor) -> None:
    name = executor.submit(1).async_output_id
    assert executor.drop_output(name, timeout=PATIENCE)
    with pytest.raises(OutputDroppedError):
        executor.wait_output_ready(name)
    with pytest.raises(UnknownOutputError):
        executor.drop_output("r0")


def test_a_consumer_that_stops_reading_holds_the_workers_back_and_goes_on(
    executor: Executor,
) -> None:
    """40 outputs of 0.5 MB, where 4 MB a worker are allowed, and nobody takes one for a while."""
    futures = [executor.submit(("fill", (n, MB // 8))) for n in range(40)]

    def held_back() -> bool:
        said = executor.describe_pending_state(PATIENCE).workers
        return all(any(row["phase"] == "room" for row in rows) for rows in said.values())

    until(held_back)
    assert not futures[-1].done()
    assert _shared_bytes() - _others[-1] + store_bytes(executor) <= 2 * 4 * MB
    for number, future in enumerate(futures):
        done = future.result(PATIENCE)
        assert executor.wait_output_ready(done.async_output_id).result()[0] == number


def _shared_bytes() -> int:
    """Return how much shared memory of arenas this process has mapped."""
    total = 0
    for line in mappings():
        start, _, end = line.split()[0].partition("-")
        total += int(end, 16) - int(start, 16)
    return total


def test_waits_of_many_threads_on_one_output_get_the_same_object(
    executor: Executor,
) -> None:
    done = executor.execute_model(("fill", (1, 9000)))
    future = executor.wait_output_ready(done.async_output_id)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(future.result())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(results) == 8
    assert all(result is results[0] for result in results)
    assert isinstance(results[0], torch.Tensor)


def test_a_forked_child_is_told_that_it_has_no_executor(executor: Executor) -> None:
    child = os.fork()
    if child == 0:  # no assertion may run pytest's code here
        try:
            healthy = executor.check_health()
            executor.shutdown()
            executor.submit(1)
        except ExecutorForkedError:
            os._exit(healthy)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert output_of(executor, "still") == "still"
