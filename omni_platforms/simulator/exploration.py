"""Runs one piece of stream code under many schedules, and tells which ones break it.

The family of schedules is small and enough for every bug that two unordered
tasks make: all eager, all lazy, each stream lazy alone, and each stream eager
alone. If a task of stream s should have been waited for by a task of stream t
and is not, then with t alone eager the other side comes first, each time: what
nothing demands does not run, and t does not demand it. Random schedules are for bugs of more than
two parts. A condition: what the code enqueues does not depend on the schedule,
except through queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from omni_platforms.simulator.policy import policy_named
from omni_platforms.simulator.races import Race
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import StreamKey

Scenario = Callable[[], object]


@dataclass
class Failure:
    """One schedule under which the scenario raised."""

    schedule: str
    """The name of the schedule; `replay` takes it."""
    error: Exception
    timeline: str
    """What was enqueued, run and waited for, line by line, with the races at the end."""

    def __str__(self) -> str:
        kind = type(self.error).__name__
        return f"schedule {self.schedule}: {kind}: {self.error}\n{self.timeline}"


@dataclass
class Exploration:
    """What became of a scenario under each schedule."""

    schedules: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    races: set[Race] = field(default_factory=set)

    @property
    def ok(self) -> bool:
        """Whether no schedule failed and no race was found."""
        return not self.failures and not self.races

    def failed(self, schedule: str) -> bool:
        """Whether the scenario raised under `schedule`."""
        return any(failure.schedule == schedule for failure in self.failures)

    def __str__(self) -> str:
        head = (
            f"{len(self.failures)} of {len(self.schedules)} schedules failed, "
            f"{len(self.races)} races"
        )
        races = [f"race: {race}" for race in sorted(self.races)]
        return "\n".join([head, *races, *(str(failure) for failure in self.failures[:1])])


def explore(
    runtime: Runtime, scenario: Scenario, seeds: int, max_streams: int, detect_races: bool
) -> Exploration:
    """Run `scenario` under the family of schedules and under `seeds` random ones."""
    result = Exploration()
    streams = _run_into(result, runtime, scenario, "eager", detect_races)
    for schedule in _family(streams[:max_streams], seeds):
        _run_into(result, runtime, scenario, schedule, detect_races)
    return result


def _family(streams: list[StreamKey], seeds: int) -> Iterator[str]:
    yield "lazy"
    for device, number in streams:
        yield f"lazy:{device}.{number}"
        yield f"only:{device}.{number}"
    for seed in range(seeds):
        yield f"random:{seed}"


def _run_into(
    result: Exploration, runtime: Runtime, scenario: Scenario, schedule: str, detect_races: bool
) -> list[StreamKey]:
    """Run `scenario` once, note what became of it and return the streams that it used."""
    runtime.start_run(policy_named(schedule), detect_races=detect_races)
    result.schedules.append(schedule)
    try:
        scenario()
        runtime.wait_for_everything()
    except Exception as error:  # noqa: BLE001 - reported with its schedule
        result.failures.append(Failure(schedule, error, runtime.describe()))
    result.races.update(runtime.races())
    streams = [q.key for q in runtime.scheduler.queues() if q.last is not None]
    runtime.start_run(policy_named("eager"), detect_races=False)
    return streams


def replay(runtime: Runtime, scenario: Scenario, schedule: str) -> None:
    """Run `scenario` once under `schedule`; raise what it raises."""
    runtime.start_run(policy_named(schedule), detect_races=True)
    scenario()
    runtime.wait_for_everything()
