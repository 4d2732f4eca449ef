"""The ways on a simulated device whose work runs as late as it can, and one whose events lie."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from omni_platforms.bench import tokens
from omni_platforms.bench.context import Bench
from omni_platforms.bench.forwards import Forward, Request, Work
from omni_platforms.bench.pipeline_ways import Blocking, Consumer, Executor
from omni_platforms.errors import BenchError
from omni_platforms.outputs import AsyncOutputExecutor
from omni_platforms.simulator import Simulation

SIZE = 100_000  # bytes: copied on the side stream
LIES = "dma-outside-event"


def drive(sim: Simulation, in_flight: int, schedule: str = "lazy") -> None:
    """Send requests through the executor, with the outputs read on a thread of their own."""
    sim.reset(schedule)
    device = sim.platform.resolve_device()
    requests = [Request(number, Work("tiny", 2), SIZE) for number in range(1, 7)]
    with (
        AsyncOutputExecutor(sim.platform, device) as outputs,
        ThreadPoolExecutor(1) as thread,
    ):
        forward = Forward(sim.platform, device)
        for way in (Executor(forward, outputs), Blocking(forward)):
            Consumer(thread).seconds("a way", way, requests, in_flight)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_requests_are_right_however_late_the_copies_are(sim: Simulation, in_flight: int) -> None:
    for schedule in ("lazy", "random:1", "random:2"):
        drive(sim, in_flight, schedule)


def test_requests_over_events_that_cover_no_copy_are_found_wrong(sim: Simulation) -> None:
    sim.reset("lazy")
    with sim.faulty(LIES), pytest.raises(BenchError, match="a way"):
        drive(sim, 4)
    sim.reset("eager")


def steps(sim: Simulation, schedule: str) -> dict[str, Any]:
    """Return what each way gives of some steps of a model."""
    sim.reset(schedule)
    device = sim.platform.resolve_device()
    model = tokens.Model(Bench(sim.platform, device, rounds=1))
    with (
        AsyncOutputExecutor(sim.platform, device) as lagging,
        AsyncOutputExecutor(sim.platform, device) as draining,
    ):
        loops = tokens.loops(lagging, draining)
        return {name: loop(model, STEPS) for name, loop in loops.items()}


STEPS = tokens.Steps(Work("tiny", 2), sequences=3, logprobs=True, count=40, first=7)


@pytest.mark.parametrize("schedule", ["lazy", "random:1"])
def test_tokens_are_right_however_late_the_copies_are(sim: Simulation, schedule: str) -> None:
    for name, values in steps(sim, schedule).items():
        tokens.check(name, STEPS, values)


def test_tokens_over_events_that_cover_no_copy_are_found_wrong(sim: Simulation) -> None:
    sim.reset("lazy")
    with sim.faulty(LIES):
        found = steps(sim, "lazy")
    sim.reset("eager")
    tokens.check(tokens.CPU, STEPS, found[tokens.CPU])
    for name in (tokens.LAG_ONE, tokens.DRAIN):
        with pytest.raises(BenchError, match="tokens, executor"):
            tokens.check(name, STEPS, found[name])
