"""Small outputs that `submit` copies itself: only for who asks soon, and only on an idle device."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.errors import CaptureError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.outputs import direct as direct_module
from omni_platforms.outputs.asking import Asker
from omni_platforms.outputs.direct import Direct
from omni_platforms.simulator import Simulation
from tests.simulated import NAME, seeds


def _small(i: int, n: int = 64) -> torch.Tensor:
    return torch.full((n,), float(i), device=NAME) * 2


@pytest.fixture(autouse=True)
def _patient() -> Iterator[None]:
    """Leave a simulated device time to become idle, so that clocks decide nothing."""
    with mock.patch.object(direct_module, "_PATIENCE_S", 0.2):
        yield


@pytest.fixture
def outputs(sim: Simulation) -> Iterator[AsyncOutputExecutor]:
    """An executor whose caller asks for each output at once, on a device that is quick."""
    sim.reset("eager")
    with AsyncOutputExecutor(sim.platform) as outputs:
        assert outputs.submit(_small(1)).result(10).tolist() == [2.0] * 64
        yield outputs


def asked_soon(sim: Simulation, lag: int) -> None:
    """Each step asks for the output of `lag` steps before; memory is used again at once."""
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures: list[Any] = []
        for i in range(8):
            futures.append(outputs.submit([_small(i), i]))
            torch.full((64,), 99.0, device=NAME)
            if i >= lag:
                assert futures[i - lag].result(10)[0].tolist() == [2.0 * (i - lag)] * 64
        for i, future in enumerate(futures):
            assert future.result(10) == [future.result(10)[0], i]


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_no_schedule_corrupts_an_output(sim: Simulation, lag: int) -> None:
    with mock.patch.object(direct_module, "_FEWEST", 1):
        found = sim.explore(lambda: asked_soon(sim, lag), seeds=seeds(20))
    assert found.ok, str(found)


@pytest.mark.parametrize("lag", [0, 1])
def test_who_asks_soon_is_served_at_once(outputs: AsyncOutputExecutor, lag: int) -> None:
    before, futures = outputs.stats().at_once, []
    for i in range(20):
        futures.append(outputs.submit({"ids": _small(i), "step": i}))
        if i >= lag:
            futures[i - lag].result(10)
    assert outputs.stats().at_once - before >= 19
    for i, future in enumerate(futures):
        result = future.result(10)
        assert result["ids"].tolist() == [2.0 * i] * 64
        assert result["step"] == i
    stats = outputs.stats()
    assert (stats.submitted, stats.resolved, stats.pending) == (21, 21, 0)
    assert stats.bytes_copied == 21 * 64 * 4


def test_who_asks_by_polling_or_waiting_is_served_at_once(outputs: AsyncOutputExecutor) -> None:
    for i in range(4):
        assert outputs.submit(_small(i)).done()
    for i in range(4):
        done, _ = concurrent.futures.wait([outputs.submit(_small(i))], timeout=10)
        assert done.pop().result().tolist() == [2.0 * i] * 64
    heard: list[Any] = []
    for i in range(4):
        outputs.submit(_small(i)).add_done_callback(lambda f: heard.append(f.result()[0].item()))
    assert heard == [0.0, 2.0, 4.0, 6.0]

    async def wait() -> Any:
        return await outputs.submit(_small(9))

    assert asyncio.run(wait()).tolist() == [18.0] * 64
    assert outputs.stats().at_once >= 12


def test_who_never_asks_is_not(sim: Simulation) -> None:
    sim.reset("eager")
    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = [outputs.submit(_small(i)) for i in range(40)]
        outputs.drain()
        assert outputs.stats().at_once == 0
        assert [f.result(10)[0].item() for f in futures] == [2.0 * i for i in range(40)]


def _work_on(sim: Simulation, outputs: AsyncOutputExecutor) -> int:
    """Submit while the device is busy, as it is under lazy scheduling; return how many at once."""
    before = outputs.stats().at_once
    sim.reset("lazy")
    with mock.patch.object(direct_module, "_PATIENCE_S", 0.0):
        future = outputs.submit(_small(3))
    assert future.result(10).tolist() == [6.0] * 64
    return outputs.stats().at_once - before


def test_a_busy_device_is_not_waited_for(sim: Simulation, outputs: AsyncOutputExecutor) -> None:
    assert _work_on(sim, outputs) == 0


def test_without_the_look_it_would_be(sim: Simulation, outputs: AsyncOutputExecutor) -> None:
    with mock.patch.object(Direct, "_device_is_idle", return_value=True):
        assert _work_on(sim, outputs) == 1


def _behind_another(outputs: AsyncOutputExecutor) -> list[str]:
    """Submit one output whose `on_host` is held up, and a small one; return who came first."""
    go, order = threading.Event(), []
    first = outputs.submit(_small(1), on_host=lambda value: go.wait(10))
    first.add_done_callback(lambda _: order.append("first"))
    second = outputs.submit(_small(2))
    if second.is_settled():
        order.append("second")
    go.set()
    assert second.result(10).tolist() == [4.0] * 64
    assert first.result(10)
    return order


def test_nothing_overtakes_an_output_in_flight(outputs: AsyncOutputExecutor) -> None:
    assert _behind_another(outputs) == ["first"]


def _settle_whatever_is_in_flight(self: Any, pending: Any, leaves: Any) -> bool:
    pending.future.settle_now(pending.rebuild([leaf.to("cpu") for leaf in leaves]), None)
    pending.finished = True
    return True


def test_without_the_turn_it_would_overtake(outputs: AsyncOutputExecutor) -> None:
    with mock.patch.object(Asker, "settle_now", _settle_whatever_is_in_flight):
        assert _behind_another(outputs) == ["second", "first"]


def test_an_error_of_the_copy_is_the_outputs(outputs: AsyncOutputExecutor) -> None:
    leaf = _small(4)
    with mock.patch.object(torch.Tensor, "to", side_effect=RuntimeError("device lost")):
        future = outputs.submit(leaf)
    with pytest.raises(RuntimeError, match="device lost"):
        future.result(10)
    assert outputs.stats().failed == 1
    assert outputs.submit(_small(5)).result(10).tolist() == [10.0] * 64


def test_nothing_is_copied_inside_a_capture_guard(outputs: AsyncOutputExecutor) -> None:
    with outputs.capture_guard(), pytest.raises(CaptureError):
        outputs.submit(_small(1))
    assert outputs.submit(_small(2)).result(10).tolist() == [4.0] * 64
    assert outputs.stats().pending == 0


def test_a_result_made_in_inference_mode_can_be_written_to(outputs: AsyncOutputExecutor) -> None:
    with torch.inference_mode():
        result = outputs.submit(_small(2)).result(10)
    result.add_(1)
    assert result.tolist() == [5.0] * 64


@given(busy=st.lists(st.booleans(), min_size=1, max_size=400))
def test_a_busy_device_is_asked_ever_more_seldom(busy: list[bool]) -> None:
    """Between two tries on a busy device lie at least 128 outputs, and at most 4096."""
    direct = Direct(torch.device("cpu"), mock.Mock())
    tries = []
    for number, is_busy in enumerate(busy * 20):
        if direct.is_likely(number):
            with mock.patch.object(Direct, "_device_is_idle", return_value=not is_busy):
                if direct.copies(number, []) is None:
                    tries.append(number)
        direct.asked(number)
    gaps = [b - a for a, b in itertools.pairwise(tries)]
    assert all(gap >= 128 for gap in gaps)
