"""What a failing schedule says to a person: the error, what is missing, and the timeline."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass

from omni_platforms.simulator.call_site import raised_at
from omni_platforms.simulator.races import Race
from omni_platforms.simulator.runtime import Runtime
from omni_platforms.simulator.task import COPY_TO_HOST, Task


@dataclass
class Failure:
    """One schedule under which the scenario raised."""

    schedule: str
    """The name of the schedule; `replay` takes it."""
    error: Exception
    """What the scenario raised. The variables of its frames are gone, as they held tensors."""
    timeline: str
    """What was enqueued, run and waited for, line by line, with the races at the end."""
    missing: list[str]
    """What nothing orders, or nothing waited for, in this run."""
    excerpt: str
    """The part of the timeline around what is missing."""

    def __str__(self) -> str:
        kind = type(self.error).__name__
        site = raised_at(self.error)
        missing = ["what is missing:", *self.missing] if self.missing else []
        lines = [
            f"schedule {self.schedule}: {kind}: {self.error}",
            *([f"  raised at {site}"] if site else []),
            f"  under this schedule {explain(self.schedule)}",
            *missing,
            "timeline (> marks what is missing an order; stream n.m is stream m of device n):",
            self.excerpt,
            f"run it again: replay(scenario, {self.schedule!r})",
        ]
        return "\n".join(lines)


def failure_of(runtime: Runtime, schedule: str, error: Exception) -> Failure:
    """Describe the run that has just ended with `error`; call it before the next one begins."""
    races = runtime.races()
    unread = [] if races else _unread(runtime.scheduler.unfinished())
    marked = {*runtime.racing_tasks(), *(task.number for task in unread)}
    return Failure(
        schedule,
        error,
        runtime.describe(),
        [*map(describe_race, sorted(races)), *_not_waited_for(unread)],
        runtime.scheduler.timeline.excerpt(marked),
    )


def forget_frames(error: BaseException | None) -> None:
    """Let go what the frames of an error and of its causes hold: tensors of that run."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def explain(schedule: str) -> str:
    """Say in words what happens under a schedule."""
    kind, _, rest = schedule.partition(":")
    if kind == "only":
        return f"operations of stream {rest} run at once, others only when something waits for them"
    if kind == "eager":
        return "every operation runs as soon as it is enqueued"
    if kind == "random":
        return "operations run in a random order that the streams allow"
    if not rest:
        return "every operation runs only when something waits for it"
    return f"operations of stream {rest} run only when something waits for them, others at once"


def describe_race(race: Race) -> str:
    """Return a race in lines: the two uses, and the remedy."""
    width = max(len(race.first), len(race.second))
    rows = [(race.first, race.first_site), (race.second, race.second_site)]
    uses = [f"    {use:<{width}}  {site}".rstrip() for use, site in rows]
    return "\n".join(["  nothing orders", *uses, f"  {race.remedy}"])


def _unread(unfinished: list[Task]) -> list[Task]:
    return [task for task in unfinished if task.label == COPY_TO_HOST]


def _not_waited_for(copies: list[Task]) -> list[str]:
    """Say which copies to the host nobody has waited for, those of one line together."""
    groups = Counter((str(task.queue), task.site) for task in copies)
    return [
        f"  nothing waited for\n    {COPY_TO_HOST} on {stream}  {site}"
        f"{f'  ({count} times)' if count > 1 else ''}\n"
        f"  Before the host reads the target, it must synchronize an event recorded on {stream} "
        "after the copy, or that stream."
        for (stream, site), count in groups.items()
    ]
