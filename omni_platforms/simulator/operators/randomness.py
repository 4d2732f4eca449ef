"""Random numbers whose values do not depend on the schedule.

Each random operator draws a seed when it is enqueued, from the generator that
it was given or from its device's default one, and its task starts from that
seed whenever it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class DefaultGenerators:
    """One default generator for each device, as `torch.<device>.manual_seed` seeds them."""

    def __init__(self, device_count: int) -> None:
        self.generators = tuple(torch.Generator() for _ in range(device_count))
        self.seed_all(torch.initial_seed())

    def seed_all(self, seed: int) -> None:
        """Start all devices' generators from `seed`."""
        for generator in self.generators:
            generator.manual_seed(seed)

    def draw_seed(self, generator: torch.Generator | None, device: int) -> int:
        """Return the next seed of `generator`, or of the default one of `device`."""
        if generator is None:
            return _draw(self.generators[device])
        # Drawing needs a generator without the simulated device's label.
        plain = torch.Generator()
        plain.set_state(generator.get_state())
        seed = _draw(plain)
        generator.set_state(plain.get_state())
        return seed


def is_random(op: Any) -> bool:
    """Whether `op` draws random numbers."""
    return takes_generator(op) or torch.Tag.nondeterministic_seeded in op.tags


def takes_generator(op: Any) -> bool:
    """Whether `op` has an argument named generator."""
    return any(argument.name == "generator" for argument in op._schema.arguments)


@contextlib.contextmanager
def default_generator_at(seed: int) -> Iterator[None]:
    """Let torch's CPU generator start from `seed` inside a `with` block, and restore it."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _draw(generator: torch.Generator) -> int:
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator))
