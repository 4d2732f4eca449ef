"""The executor and captured graphs: static outputs, captures under way, on a simulated device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

from omni_platforms.errors import CaptureError, SimulatedCaptureError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.outputs.capture import CaptureGate
from omni_platforms.simulator import Simulation
from tests.simulated import NAME, needs_graphs, seeds

pytestmark = needs_graphs

D = NAME
SMALL, LARGE = 8, 20_000
"""Below and above the size up to which an output takes the shorter way."""


def capture(work: Callable[[], torch.Tensor]) -> tuple[torch.accelerator.Graph, torch.Tensor]:
    graph = torch.accelerator.Graph()
    with torch.Stream(device=D), graph:
        output = work()
    return graph, output


def replays(sim: Simulation, numel: int, *, borrow: bool) -> None:
    """Three replays write one static output, which is submitted after each.

    The background thread is held at the first output until all are submitted:
    what it asks the device for makes the simulated work progress.
    """
    static = torch.zeros(numel, device=D)
    graph, output = capture(lambda: static * 2)
    submitted = threading.Event()

    def hold(result: dict[str, Any]) -> dict[str, Any]:
        assert submitted.wait(10)
        return result

    with AsyncOutputExecutor(sim.platform) as outputs:
        futures = []
        for step in range(3):
            static.fill_(step)
            graph.replay()
            value = {"image": output, "step": step}
            futures.append(outputs.submit(value, on_host=hold, borrow=borrow))
        submitted.set()
        for step, future in enumerate(futures):
            image = future.result(10)["image"]
            assert image.eq(2.0 * step).all(), "CORRUPT"


sizes = pytest.mark.parametrize("numel", [SMALL, LARGE])


@sizes
def test_a_borrowed_static_output_is_right_under_each_schedule(sim: Simulation, numel: int) -> None:
    found = sim.explore(lambda: replays(sim, numel, borrow=True), seeds=seeds(40))
    assert found.ok, str(found)


def test_a_static_output_that_is_not_borrowed_is_seen_as_corrupt(sim: Simulation) -> None:
    """A large one: small outputs may be copied on the caller's stream, before the next replay."""
    for _ in range(5):
        found = sim.explore(lambda: replays(sim, LARGE, borrow=False))
        assert any("CORRUPT" in str(failure.error) for failure in found.failures), str(found)


def test_a_submit_in_a_capture_is_refused_and_harms_it_not(sim: Simulation) -> None:
    source = torch.ones(LARGE, device=D)
    with AsyncOutputExecutor(sim.platform) as outputs:

        def work() -> torch.Tensor:
            value = source + 1
            for borrow in (False, True):
                with pytest.raises(CaptureError, match="after the replay"):
                    outputs.submit(value, borrow=borrow)
            return value

        graph, output = capture(work)
        graph.replay()
        assert outputs.submit(output, borrow=True).result(10).eq(2).all()


def one_capture(sim: Simulation, numel: int, *, wait_inside: bool) -> torch.Tensor:
    """Capture a graph while another thread hands over an output; return the graph's result."""
    sim.reset("lazy")
    source, graph = torch.ones(numel, device=D), torch.accelerator.Graph()
    stream, tripled = torch.Stream(device=D), source * 3
    found: list[torch.Tensor] = []
    with AsyncOutputExecutor(sim.platform) as outputs:

        def hand_over() -> None:
            with contextlib.suppress(SimulatedCaptureError):
                found.append(outputs.submit(tripled).result(10))

        worker = threading.Thread(target=hand_over)
        with outputs.capture_guard(), stream:
            graph.capture_begin()
            output = source + 1
            worker.start()
            if wait_inside:
                worker.join()
            graph.capture_end()
        worker.join()
        graph.replay()
        assert found[0].eq(3).all()
        return output.cpu()


@sizes
def test_the_guard_keeps_other_threads_from_breaking_a_capture(sim: Simulation, numel: int) -> None:
    for _ in range(20):
        assert one_capture(sim, numel, wait_inside=False).eq(2).all()


@sizes
def test_without_the_guard_another_thread_breaks_the_capture(sim: Simulation, numel: int) -> None:
    with mock.patch.object(CaptureGate, "hold", contextlib.nullcontext):
        for _ in range(5):
            with pytest.raises(SimulatedCaptureError, match="There is no graph"):
                one_capture(sim, numel, wait_inside=True)
