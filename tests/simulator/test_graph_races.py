"""Bugs of code that replays graphs, each with its right twin, under every schedule."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from omni_platforms.simulator import Simulation
from tests.simulated import needs_graphs

pytestmark = needs_graphs

D = "sim"
acc = torch.accelerator


class Corrupt(AssertionError):
    """A value is not what the program computes in order."""


def check(got: object, want: object) -> None:
    if got != want:
        raise Corrupt(f"{got} != {want}")


def overwritten_output(right: bool) -> None:
    """A replay overwrites the static output while a side stream copies it out."""
    static, side, graph = torch.zeros(8, device=D), torch.Stream(device=D), acc.Graph()
    acc.synchronize()
    with torch.Stream(device=D), graph:
        output = static * 2
    copies: list[tuple[torch.Tensor, torch.Event]] = []
    for step in range(3):
        static.fill_(step)
        if right and copies:
            acc.current_stream().wait_event(copies[-1][1])
        graph.replay()
        side.wait_event(acc.current_stream().record_event())
        with side:
            target = torch.empty(8, pin_memory=True)
            target.copy_(output, non_blocking=True)
            copies.append((target, side.record_event()))
    for step, (target, done) in enumerate(copies):
        done.synchronize()
        check(target.tolist(), [2.0 * step] * 8)


def refilled_input(right: bool) -> None:
    """The host refills the pinned memory from which a replay still has to read."""
    staging, graph = torch.zeros(8, pin_memory=True), acc.Graph()
    static = torch.zeros(8, device=D)
    acc.synchronize()
    with torch.Stream(device=D), graph:
        static.copy_(staging, non_blocking=True)
        output = static + 1
    results = []
    for step in range(3):
        staging.fill_(step)
        graph.replay()
        results.append(output.clone())
        if right:
            acc.current_stream().synchronize()
    for step, result in enumerate(results):
        check(result.cpu().tolist(), [step + 1.0] * 8)


def replay_before_input(right: bool) -> None:
    """The replay's stream does not wait for the stream that fills the static input."""
    static, side, graph = torch.zeros(8, device=D), torch.Stream(device=D), acc.Graph()
    acc.synchronize()
    with torch.Stream(device=D), graph:
        output = static * 3
    with side:
        static.fill_(4)
        filled = side.record_event()
    if right:
        acc.current_stream().wait_event(filled)
    graph.replay()
    check(output.cpu().tolist(), [12.0] * 8)
    side.synchronize()


def unordered_branches(right: bool) -> None:
    """A branch inside the graph reads what another branch writes, and waits for nothing."""
    source = torch.ones(8, device=D)
    main, branch, graph = torch.Stream(device=D), torch.Stream(device=D), acc.Graph()
    acc.synchronize()
    with main, graph:
        value = torch.zeros(8, device=D)
        branch.wait_event(main.record_event())
        value.add_(source)
        if right:
            branch.wait_event(main.record_event())
        with branch:
            result = value * 5
        main.wait_event(branch.record_event())
    for _ in range(2):
        graph.replay()
        check(result.cpu().tolist(), [5.0] * 8)


def freed_inside(right: bool) -> None:
    """A value that a branch of the graph still reads is freed, and its memory taken again."""
    source = torch.ones(8, device=D)
    main, branch, graph = torch.Stream(device=D), torch.Stream(device=D), acc.Graph()
    acc.synchronize()
    with main, graph:
        value = source + 1
        branch.wait_event(main.record_event())
        with branch:
            result = value * 5
        if right:
            value.record_stream(branch)
        del value
        other = source * 9
        main.wait_event(branch.record_event())
    graph.replay()
    check((result[0].item(), other[0].item()), (10.0, 9.0))


SCENARIOS = [
    overwritten_output,
    refilled_input,
    replay_before_input,
    unordered_branches,
    freed_inside,
]
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
Scenario = Callable[[bool], None]


@every_scenario
def test_a_planted_bug_is_seen_every_time(sim: Simulation, scenario: Scenario) -> None:
    for _ in range(10):
        found = sim.explore(lambda: scenario(False))
        assert any(isinstance(failure.error, Corrupt) for failure in found.failures), str(found)
        assert not found.failed("eager")


@every_scenario
def test_the_right_twin_never_fails(sim: Simulation, scenario: Scenario) -> None:
    found = sim.explore(lambda: scenario(True), seeds=60)
    assert found.ok, str(found)


def test_the_race_inside_a_graph_is_named(sim: Simulation) -> None:
    races = [str(race) for race in sim.explore(lambda: unordered_branches(False)).races]
    assert any("aten.add.out (graph" in race and "aten.mul.out (graph" in race for race in races), (
        races
    )
