"""`stats()`: each request and each output is counted once, by what became of it."""

from __future__ import annotations

import pytest
import torch

from omni_platforms import ExecutorClosedError, MultiprocExecutor, OutputDroppedError
from omni_platforms.engine.ledger import Ledger
from omni_platforms.engine.ledger_records import Future, Outcome
from tests.engine.fakes import PATIENCE, Pair, until

ROOM = {"arena_cap": 4 << 20, "arena_segment_bytes": 1 << 20, "arena_initial_bytes": 1 << 20}


def ledger_with(*job_ids: str) -> Ledger:
    ledger = Ledger(lambda _: Future())
    for job_id in job_ids:
        ledger.open(job_id, Future())
    return ledger


def test_every_end_of_an_output_is_counted_once() -> None:
    ledger = ledger_with("good", "bad", "dropped", "failed", "lost")
    for job_id in ("good", "bad", "dropped"):
        ledger.compute_done(job_id, Outcome("handle"))
    ledger.compute_done("failed", Outcome(error=ValueError("no")))
    ledger.wait("good")
    ledger.ready("good", Outcome("value"))
    ledger.ready("bad", Outcome(error=ValueError("no copy")))
    ledger.wait("bad")
    ledger.drop("dropped")
    assert (ledger.submitted, ledger.computed, ledger.failed_requests) == (5, 3, 1)
    assert ledger.fates() == {"delivered": 1, "dropped": 1, "failed": 2}
    ledger.fail_all(ExecutorClosedError("the end"))
    assert (ledger.computed, ledger.failed_requests) == (3, 2)
    assert ledger.fates() == {"delivered": 1, "dropped": 1, "failed": 3}


def test_an_output_that_nobody_takes_is_pending(pair: Pair) -> None:
    executor, _ = pair
    assert executor.stats().state == "running"
    future = executor.submit("a")
    until(lambda: executor.stats().workers[0].requests == 1)
    stats = executor.stats()
    assert (stats.submitted, stats.computed, stats.pending, stats.queued) == (1, 0, 1, 0)
    assert not future.done()
    executor.shutdown(0.0)
    stats = executor.stats()
    assert (stats.state, stats.failed_requests, stats.failed, stats.pending) == ("ended", 1, 1, 0)


def test_real_workers_count_bytes() -> None:
    with MultiprocExecutor("tests.engine.workers:Worker", 2, "cpu", **ROOM) as executor:  # type: ignore[arg-type]
        dones = [executor.execute_model(("fill", (n, 100_000))) for n in range(3)]
        dropped = executor.execute_model(("fill", (9, 10)))
        executor.drop_output(dropped.async_output_id)
        with pytest.raises(OutputDroppedError):
            executor.wait_output_ready(dropped.async_output_id)
        outputs = [executor.wait_output_ready(d.async_output_id).result(PATIENCE) for d in dones]
        with pytest.raises(ValueError, match="no reason"):
            executor.execute_model(("fail", "reason"))
        assert all(isinstance(output, torch.Tensor) for output in outputs)
        stats = executor.stats()
        assert (stats.submitted, stats.computed, stats.failed_requests) == (5, 4, 1)
        assert (stats.delivered, stats.dropped, stats.failed, stats.pending) == (3, 1, 1, 0)
        received = sum(worker.bytes_received for worker in stats.workers)
        assert received in (3 * 400_000, 3 * 400_000 + 40)  # what was dropped may have come before
        assert [worker.rank for worker in stats.workers] == [0, 1]
        assert all(worker.alive and worker.device == "cpu" for worker in stats.workers)
        del outputs
    assert not any(worker.alive for worker in executor.stats().workers)
    assert executor.stats().as_dict()["workers"][0]["bytes_received"] > 0
