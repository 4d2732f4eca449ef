"""The family of schedules tries both orders of every two operations that nothing orders.

Random programs for the scheduler alone: streams, waits between them, and waits
and accesses of the host. The reference is the happens-before relation, worked
out here from the program and not by the simulator.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from omni_platforms.simulator.fault_state import FaultState
from omni_platforms.simulator.gate import Gate
from omni_platforms.simulator.policy import policy_named
from omni_platforms.simulator.scheduler import Scheduler
from omni_platforms.simulator.task import Task

STREAMS = 4


@dataclass
class Step:
    """A task on `stream` that waits for step `after`, or a wait or access of the host (-1)."""

    stream: int
    after: int | None = None


@dataclass
class Program:
    steps: list[Step]
    before: list[set[int]] = field(default_factory=list)  # for each step, what is ordered before it

    def __post_init__(self) -> None:
        host: set[int] = set()
        last: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            before = set(host)
            sources = [step.after, last.get(step.stream)] if step.stream >= 0 else [step.after]
            for source in sources:
                if source is not None:
                    before |= {source} | self.before[source]
            self.before.append(before)
            if step.stream >= 0:
                last[step.stream] = number
            else:
                host |= before

    def unordered(self) -> list[tuple[int, int]]:
        """Return the pairs (earlier, later) of a task and a later step without an order."""
        return [
            (one, two)
            for two in range(len(self.steps))
            for one in range(two)
            if self.steps[one].stream >= 0 and one not in self.before[two]
        ]


def some_program(seed: int) -> Program:
    chance = random.Random(seed)
    steps: list[Step] = []
    for number in range(12):
        tasks = [at for at in range(number) if steps[at].stream >= 0]
        after = chance.choice(tasks) if tasks and chance.random() < 0.5 else None
        on_host = chance.random() < 0.2
        steps.append(Step(-1 if on_host else chance.randrange(STREAMS), after))
    return Program(steps)


def order_under(schedule: str, program: Program) -> list[int]:
    """Run the program and return the order in which its steps happened."""
    scheduler = Scheduler(Gate(), FaultState().hang)
    scheduler.start(policy_named(schedule), None)
    tasks: dict[int, Task] = {}
    happened: list[int] = []

    def noting(number: int) -> Callable[[], None]:
        return lambda: happened.append(number)

    for number, step in enumerate(program.steps):
        waits_for = None if step.after is None else tasks[step.after]
        if step.stream < 0:
            if waits_for is not None:
                scheduler.host_wait(waits_for, "test")
            happened.append(number)
            continue
        queue = scheduler.queue((0, step.stream))
        if waits_for is not None and not waits_for.done and waits_for.queue is not queue:
            scheduler.submit(queue, "wait", None, waits_for=waits_for)
        tasks[number] = scheduler.submit(queue, "task", noting(number))
    scheduler.finish()
    return happened


def reversed_pairs(program: Program, schedules: list[str]) -> set[tuple[int, int]]:
    found = set()
    for schedule in schedules:
        place = {number: at for at, number in enumerate(order_under(schedule, program))}
        for later, before in enumerate(program.before):
            assert all(place[one] < place[later] for one in before), "an order was broken"
        found |= {(one, two) for one, two in program.unordered() if place[two] < place[one]}
    return found


FAMILY = ["lazy", *(f"only:0.{stream}" for stream in range(STREAMS))]
ONE_LAZY = ["lazy", *(f"lazy:0.{stream}" for stream in range(STREAMS))]


def test_each_pair_without_an_order_is_reversed() -> None:
    pairs = 0
    for seed in range(300):
        program = some_program(seed)
        assert reversed_pairs(program, FAMILY) == set(program.unordered()), program
        pairs += len(program.unordered())
    assert pairs > 1000


def test_each_pair_is_in_the_order_of_the_program_under_eager() -> None:
    for seed in range(100):
        program = some_program(seed)
        assert order_under("eager", program) == list(range(len(program.steps)))


def test_one_lazy_stream_at_a_time_would_miss_pairs() -> None:
    """Why streams are made eager alone: an eager bystander demands what it waits for."""
    program = Program([Step(0), Step(1, after=0), Step(2), Step(-1, after=1), Step(-1, after=2)])
    assert (0, 2) in program.unordered()
    assert (0, 2) not in reversed_pairs(program, ONE_LAZY)
    assert (0, 2) in reversed_pairs(program, FAMILY)


@pytest.mark.parametrize("schedule", [*FAMILY, *ONE_LAZY, "random:3"])
def test_the_name_of_a_schedule_names_it(schedule: str) -> None:
    assert policy_named(schedule).name == schedule
