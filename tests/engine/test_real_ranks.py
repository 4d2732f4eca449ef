"""Two real workers in lockstep: one module, one pair of processes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_platforms import Preview, RequestRejectedError
from omni_platforms.engine.interface import Executor
from omni_platforms.shm.lease import open_leases
from tests.engine.backends import backends, executor_on
from tests.engine.fakes import PATIENCE
from tests.engine.test_executor import ROOM


@pytest.fixture(scope="module", params=backends("engine_ranks"))
def ranks(request: pytest.FixtureRequest) -> Iterator[Executor]:
    name, lockstep = "tests.engine.rank_workers:RankWorker", {"mode": "lockstep", "output_rank": 1}
    with executor_on(request, request.param, name, 2, "cpu", **lockstep, **ROOM) as executor:
        yield executor


def test_every_rank_computes_and_one_delivers(ranks: Executor) -> None:
    for _ in range(20):
        done = ranks.execute_model(("fail_on", {}))
        output = ranks.wait_output_ready(done.async_output_id).result()
        assert output.eq(2).all(), "of rank 1"
    ranks.collective_rpc("pause_collector", timeout=PATIENCE)
    assert ranks.collective_rpc("alive", timeout=PATIENCE) == [0, 0], "no rank keeps an output"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_of_either_rank_is_raised(ranks: Executor, failing: int) -> None:
    with pytest.raises(OSError, match=f"rank {failing}: disk") as caught:
        ranks.execute_model(("fail_on", {failing: "disk"}))
    assert "do_fail_on" in str(caught.value.__cause__)
    assert not ranks.describe_pending_state().outputs
    gc.collect()
    assert open_leases() == 0, "the other rank's output was let go"


def test_an_internal_error_beats_a_rejection(ranks: Executor) -> None:
    with pytest.raises(OSError, match="rank 1: disk") as caught:
        ranks.execute_model(("fail_on", {0: "rejected", 1: "disk"}))
    errors = caught.value.rank_errors  # type: ignore[attr-defined]
    assert isinstance(errors[0], RequestRejectedError)
    with pytest.raises(RequestRejectedError, match="rank 0 refuses"):
        ranks.execute_model(("fail_on", {0: "rejected"}))


def test_when_one_rank_cannot_sleep_none_does(ranks: Executor) -> None:
    with pytest.raises(OSError, match="rank 1 cannot sleep"):
        ranks.sleep(timeout=PATIENCE)
    done = ranks.execute_model(("fail_on", {}))
    assert ranks.sleep(2, timeout=PATIENCE) == [0, 1]
    assert ranks.wake_up(timeout=PATIENCE) == ["awake", "awake"]
    assert ranks.wait_output_ready(done.async_output_id).result().eq(2).all()


def test_previews_come_from_the_rank_that_delivers(ranks: Executor, tmp_path: Path) -> None:
    seen: list[int] = []

    def go_on(preview: Preview) -> None:
        seen.append(preview.step or 0)
        for step in range(1, 5):
            Path(f"{tmp_path}/{step}").touch()  # both ranks wait for it behind their first step

    done = ranks.execute_stepwise({"steps": 4, "between": f"{tmp_path}/"}, go_on)
    assert seen[0] == 1
    assert ranks.wait_output_ready(done.async_output_id).result().eq(40).all()
