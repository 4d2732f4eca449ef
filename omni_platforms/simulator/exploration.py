"""Runs one piece of stream code under many schedules, and tells which ones break it.

The family of schedules is small and enough for every bug that two unordered
tasks make: all eager, all lazy, and each stream eager alone. If a task of
stream s should have waited for an earlier one and does not, then with s alone
eager it comes first, each time, as nothing demands the other. Each stream lazy
alone (the same where there are two streams) and random schedules are for bugs
of more than two parts. A condition: what the code enqueues does not depend on
the schedule, except through queries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from omni_platforms.errors import SimulatorStateError
from omni_platforms.simulator.policy import policy_named
from omni_platforms.simulator.races import FREE, Race
from omni_platforms.simulator.report import Failure, describe_race, failure_of, forget_frames
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import Queue, StreamKey

Scenario = Callable[[], object]
_Work = Counter[tuple[StreamKey, str]]

_TIMELINES_KEPT = 20
_NOTICES_KEPT = 5


@dataclass
class Exploration:
    """What became of a scenario under each schedule."""

    schedules: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """Only the first of many keep their timelines."""
    races: set[Race] = field(default_factory=set)
    skipped: list[str] = field(default_factory=list)
    """Streams that were not made eager alone, because there are more than `max_streams`."""
    notices: list[str] = field(default_factory=list)
    """What makes the family of schedules less than complete, though nothing failed."""

    @property
    def ok(self) -> bool:
        """Whether no schedule was skipped, none failed and no race was found."""
        return not self.failures and not self.races and not self.skipped

    def failed(self, schedule: str) -> bool:
        """Whether the scenario raised under `schedule`."""
        return any(failure.schedule == schedule for failure in self.failures)

    def __str__(self) -> str:
        head = (
            f"{len(self.failures)} of {len(self.schedules)} schedules failed, "
            f"{len(self.races)} races"
        )
        shown = self._plainest_failure()
        failures = [] if shown is None else [str(shown)]
        told = () if shown is None else shown.missing
        races = [text for text in map(describe_race, sorted(self.races)) if text not in told]
        others = ["", "also under other schedules:" if told else "races:", *races] if races else []
        return "\n".join([head, *self._incomplete(), *self.notices, *failures, *others])

    def _incomplete(self) -> list[str]:
        if not self.skipped:
            return []
        total = len(self.skipped) + sum(s.startswith("lazy:") for s in self.schedules)
        return [
            f"incomplete: the scenario uses {total} streams, and max_streams is "
            f"{total - len(self.skipped)}; bugs of these may be missed: "
            f"{', '.join(self.skipped)}. Give explore() max_streams={total}, or use fewer streams."
        ]

    def _plainest_failure(self) -> Failure | None:
        """Return one failure: with one stream unlike the others, where there is such a one."""
        one = [f for f in self.failures if f.schedule.startswith(("lazy:", "only:"))]
        return next(iter(one or self.failures), None)


def explore(
    runtime: Runtime, scenario: Scenario, seeds: int, max_streams: int, detect_races: bool
) -> Exploration:
    """Run `scenario` under the family of schedules and under `seeds` random ones."""
    if max_streams < 1:
        raise SimulatorStateError(f"max_streams={max_streams} is not possible. Use 1 or more.")
    result = Exploration()
    run = _Run(runtime, scenario, detect_races, result)
    run.under("eager")
    streams = run.streams
    result.skipped = [str(queue) for queue in streams[max_streams:]]
    for schedule in _family([queue.key for queue in streams[:max_streams]], seeds):
        run.under(schedule)
    return result


def _family(streams: list[StreamKey], seeds: int) -> Iterator[str]:
    yield "lazy"
    for device, number in streams:
        yield f"lazy:{device}.{number}"
    for device, number in streams if len(streams) > 2 else ():
        yield f"only:{device}.{number}"
    for seed in range(seeds):
        yield f"random:{seed}"


class _Run:
    """Runs a scenario under one schedule after the other."""

    def __init__(
        self, runtime: Runtime, scenario: Scenario, detect_races: bool, result: Exploration
    ) -> None:
        self._runtime = runtime
        self._scenario = scenario
        self._detect_races = detect_races
        self._result = result
        self._eager_work: _Work | None = None
        self.streams: list[Queue] = []
        """The streams that the latest run used."""

    def under(self, schedule: str) -> None:
        """Run the scenario once and note what became of it."""
        runtime, result = self._runtime, self._result
        runtime.start_run(policy_named(schedule), detect_races=self._detect_races)
        result.schedules.append(schedule)
        try:
            self._scenario()
            runtime.wait_for_everything()
        except Exception as error:  # noqa: BLE001 - reported with its schedule
            self._note(failure_of(runtime, schedule, error))
            result.races.update(runtime.races())
            forget_frames(error)
        else:
            result.races.update(runtime.races())
            self._compare(schedule)
        self.streams = [q for q in runtime.scheduler.queues() if q.last is not None]
        runtime.start_run(policy_named("eager"), detect_races=False)

    def _note(self, failure: Failure) -> None:
        if len(self._result.failures) >= _TIMELINES_KEPT:
            gone = "(not kept: replay this schedule to see it)"
            failure = replace(failure, timeline=gone, excerpt=gone)
        self._result.failures.append(failure)

    def _compare(self, schedule: str) -> None:
        """Notice when the work depends on the schedule: then the family is not complete."""
        work = Counter({k: n for k, n in self._runtime.scheduler.enqueued.items() if k[1] != FREE})
        if schedule == "eager":
            self._eager_work = work
        if self._eager_work in (None, work) or len(self._result.notices) >= _NOTICES_KEPT:
            return
        assert self._eager_work is not None
        other = (work - self._eager_work) + (self._eager_work - work)
        stream, label = min(other)
        self._result.notices.append(
            f"notice: under {schedule} the scenario enqueued other work than under eager "
            f"({label!r} on stream {stream[0]}.{stream[1]}: {work[stream, label]} times instead "
            f"of {self._eager_work[stream, label]}). The family of schedules is complete only for "
            "work that does not depend on the schedule; random seeds help."
        )


def replay(runtime: Runtime, scenario: Scenario, schedule: str) -> None:
    """Run `scenario` once under `schedule`; raise what it raises."""
    runtime.start_run(policy_named(schedule), detect_races=True)
    scenario()
    runtime.wait_for_everything()
