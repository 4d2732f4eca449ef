"""What a graph capture forbids, to whom, and what that does to the capture.

The tables are what an NVIDIA H200 did with the same calls (torch 2.11.0, CUDA 13.0).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

from omni_platforms.errors import SimulatedCaptureError
from omni_platforms.simulator import Simulation
from tests.simulated import needs_graphs

pytestmark = needs_graphs

D = "sim"
N = 1 << 16
acc = torch.accelerator


class World:
    """Things made before a capture, for calls to be made during it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.stream, self.other = torch.Stream(device=D), torch.Stream(device=D)
        self.value = torch.ones(N, device=D)
        self.pinned = torch.empty(N, pin_memory=True)
        self.pageable = torch.ones(N)
        self.outside = self.other.record_event()
        with self.stream:
            torch.empty(2 * N, device=D)  # cached
        torch.empty(2 * N, device=D)
        acc.synchronize()
        self.captured = torch.Event(D)
        self.result = self.value

    def on(self, stream: torch.Stream, call: Callable[[], Any]) -> None:
        with stream:
            call()


Call = Callable[[World], Any]

HOST_CALLS: dict[str, Call] = {
    "query of an event": lambda w: w.outside.query(),
    "wait for an event": lambda w: w.outside.synchronize(),
    "query of a stream": lambda w: w.other.query(),
    "wait for a stream": lambda w: w.other.synchronize(),
    "blocking copy elsewhere": lambda w: w.on(w.other, w.value.cpu),
    "empty_cache": lambda w: acc.empty_cache(),
}
"""Refused in a global capture on each thread, otherwise only on the capturing one."""

GROWTH: dict[str, Call] = {
    "new device memory": lambda w: torch.empty(9 * N, device=D),
    "new pinned memory": lambda w: torch.empty(9 * N, pin_memory=True),
}
"""Refused in a global capture on other threads; the capturing one may."""

DEVICE_CALLS: dict[str, Call] = {
    "wait for the device": lambda w: acc.synchronize(),
    "query of a captured event": lambda w: w.captured.query(),
    "wait for a captured event": lambda w: w.captured.synchronize(),
    "query of the capturing stream": lambda w: w.stream.query(),
    "wait for the capturing stream": lambda w: w.stream.synchronize(),
}
"""Refused on each thread in each mode."""

ALLOWED: dict[str, Call] = {
    "cached device memory": lambda w: torch.empty(2 * N, device=D),
    "work on another stream": lambda w: w.on(w.other, lambda: w.value.neg_()),
    "copy on another stream": lambda w: w.on(
        w.other, lambda: w.pinned.copy_(w.value, non_blocking=True)
    ),
    "record on another stream": lambda w: w.other.record_event(),
}

OWN: dict[str, Call] = {
    "item": lambda w: w.result[0].item(),
    "nonzero": lambda w: w.result.nonzero(),
    "copy to pinned memory that blocks": lambda w: w.pinned.copy_(w.result),
    "wait for work outside": lambda w: w.stream.wait_event(w.outside),
}
"""Refused on the capturing stream."""


def during(sim: Simulation, call: Call, *, mode: str = "global", own: bool) -> tuple[Any, Any]:
    """Make `call` in a capture; return what it raised, and what the end of the capture raised."""
    world = World(sim)
    graph = acc.Graph(capture_error_mode=mode)
    errors: list[BaseException | None] = []

    def attempt() -> None:
        try:
            call(world)
            errors.append(None)
        except SimulatedCaptureError as error:
            errors.append(error)

    acc.set_stream(world.stream)
    graph.capture_begin()
    world.result = world.value + 1
    world.captured.record()
    if own:
        attempt()
    else:
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    try:
        graph.capture_end()
        errors.append(None)
        graph.replay()
        assert world.result.cpu().eq(world.value.cpu() + 1).all()
    except SimulatedCaptureError as error:
        errors.append(error)
    return errors[0], errors[1]


def assert_broken(outcome: tuple[Any, Any]) -> None:
    assert isinstance(outcome[0], SimulatedCaptureError), outcome
    assert isinstance(outcome[1], SimulatedCaptureError), outcome
    assert str(outcome[0]).split(":")[0] in str(outcome[1])  # the end names the call


def table(calls: dict[str, Call]) -> Any:
    return pytest.mark.parametrize("call", calls.values(), ids=calls)


@table(HOST_CALLS | GROWTH | DEVICE_CALLS)
def test_another_thread_breaks_a_global_capture(sim: Simulation, call: Call) -> None:
    assert_broken(during(sim, call, own=False))


@table(HOST_CALLS | DEVICE_CALLS | OWN)
def test_the_capturing_thread_breaks_its_capture(sim: Simulation, call: Call) -> None:
    assert_broken(during(sim, call, own=True))


@table(HOST_CALLS | GROWTH)
@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_another_thread_is_free_in_the_other_modes(sim: Simulation, mode: str, call: Call) -> None:
    assert during(sim, call, mode=mode, own=False) == (None, None)


@table(DEVICE_CALLS)
@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_what_is_about_the_capture_is_refused_in_each_mode(
    sim: Simulation, mode: str, call: Call
) -> None:
    assert_broken(during(sim, call, mode=mode, own=False))


@table(GROWTH | ALLOWED)
def test_the_capturing_thread_may(sim: Simulation, call: Call) -> None:
    assert during(sim, call, own=True) == (None, None)


@table(ALLOWED)
def test_another_thread_may(sim: Simulation, call: Call) -> None:
    assert during(sim, call, own=False) == (None, None)


@table(
    {
        "to the device": lambda w: w.result.copy_(w.pageable, non_blocking=True),
        "to the device, blocking": lambda w: w.result.copy_(w.pageable),
        "to the host": lambda w: w.pageable.copy_(w.result, non_blocking=True),
        "to the host, blocking": lambda w: w.result.cpu(),
        "of a number": lambda w: torch.tensor(3.0, device=D),
    }
)
def test_a_pageable_copy_is_refused_and_the_capture_goes_on(sim: Simulation, call: Call) -> None:
    error, at_end = during(sim, call, own=True)
    assert "must be pinned" in str(error)
    assert at_end is None


def test_a_broken_capture_takes_no_more_work(sim: Simulation) -> None:
    world, graph = World(sim), acc.Graph()
    with world.stream:
        graph.capture_begin()
        with pytest.raises(SimulatedCaptureError):
            acc.synchronize()
        with pytest.raises(SimulatedCaptureError, match="was broken by this: a wait"):
            world.value.add_(1)
        with pytest.raises(SimulatedCaptureError, match="There is no graph"):
            graph.capture_end()
        assert world.value.add(1)[0].item() == 2.0  # the stream works again
    with pytest.raises(SimulatedCaptureError, match="no captured work"):
        graph.replay()


def test_an_error_in_the_body_ends_the_capture(sim: Simulation) -> None:
    world, graph = World(sim), acc.Graph()

    def fail(context: AbstractContextManager[object]) -> None:
        with world.stream, context:
            world.value.add_(1)
            raise ZeroDivisionError

    for context in (graph, sim.module.graph(sim.module.Graph())):
        with pytest.raises(ZeroDivisionError):
            fail(context)
        assert not sim.platform.is_capturing()
    assert world.value[0].item() == 1.0


def test_a_stream_that_is_not_joined(sim: Simulation) -> None:
    world, graph = World(sim), acc.Graph()

    def work(join: bool) -> None:
        world.other.wait_event(world.stream.record_event())
        with world.other:
            world.value.add_(1)
        if join:
            world.stream.wait_event(world.other.record_event())

    def capture(join: bool) -> None:
        with world.stream, graph:
            work(join)

    with pytest.raises(SimulatedCaptureError, match="waits for the captured work"):
        capture(join=False)
    capture(join=True)
    graph.replay()
    assert world.value[0].item() == 2.0


def test_a_captured_event_means_nothing_outside(sim: Simulation) -> None:
    world, graph = World(sim), acc.Graph()
    with world.stream, graph:
        world.value.add_(1)
        event = world.stream.record_event()
    for call in (event.query, event.synchronize, lambda: world.other.wait_event(event)):
        with pytest.raises(SimulatedCaptureError, match="captur"):
            call()
    event.record()
    assert event.query()


def test_where_a_capture_cannot_begin(sim: Simulation) -> None:
    first, second = acc.Graph(), acc.Graph()
    with pytest.raises(SimulatedCaptureError, match="default stream"):
        first.capture_begin()
    with torch.Stream(device=D):
        first.capture_begin()
        with pytest.raises(SimulatedCaptureError, match="captures already"):
            second.capture_begin()
        first.capture_end()
        with pytest.raises(SimulatedCaptureError, match="reset"):
            first.capture_begin()
        first.reset()
        first.capture_begin()
        with torch.Stream(device=D), pytest.raises(SimulatedCaptureError, match="an end on"):
            first.capture_end()
    with pytest.raises(SimulatedCaptureError, match="nothing to end"):
        second.capture_end()


def test_a_run_that_ends_in_a_capture_leaves_none_behind(sim: Simulation) -> None:
    graph = acc.Graph()
    acc.set_stream(torch.Stream(device=D))
    graph.capture_begin()
    sim.reset()
    assert torch.ones(2, device=D).cpu().tolist() == [1.0, 1.0]
    with pytest.raises(SimulatedCaptureError, match="nothing to end"):
        graph.capture_end()
