"""`explore` and `replay` for the simulation that this process has."""

from __future__ import annotations

from omni_platforms.simulator.exploration import Exploration, Scenario
from omni_platforms.simulator.simulation import installed


def explore(
    scenario: Scenario, seeds: int = 0, *, max_streams: int = 8, detect_races: bool = True
) -> Exploration:
    """Run `scenario` under all schedules that matter; see `Simulation.explore`.

    Raises `SimulatorStateError` when nothing is simulated in this process.
    """
    return installed().explore(scenario, seeds, max_streams=max_streams, detect_races=detect_races)


def replay(scenario: Scenario, schedule: str) -> None:
    """Run `scenario` once under `schedule`, the name in a `Failure`; raise what it raises.

    Raises `SimulatorStateError` when nothing is simulated in this process.
    """
    installed().replay(scenario, schedule)
