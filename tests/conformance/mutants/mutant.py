"""What a mutant is: one deliberate fault of a platform, and the test that must catch it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from omni_platforms.platform.interface import OmniPlatform
from omni_platforms.simulator import Simulation


@dataclass(frozen=True)
class Place:
    """Where a mutant is planted: the platform of a process, and its simulated device."""

    platform: OmniPlatform
    simulation: Simulation

    @property
    def kind(self) -> type[OmniPlatform]:
        """The platform's class, whose methods a mutant replaces."""
        return type(self.platform)


Plant = Callable[[Place], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutant:
    """A wrong platform. `caught_by` is the test of the suite that is there for it.

    `target` is what it is a mutant of: a simulated device's name, or "plugin"
    for a plugin's own module. `knob` is the fault of a device, as the list of
    faults numbers it.
    """

    name: str
    what: str
    caught_by: str
    plant: Plant
    knob: str = ""
    target: str = "sim"


def replacing(**members: Any) -> Plant:
    """Return a plant that gives the platform's class other members."""

    @contextlib.contextmanager
    def plant(place: Place) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, member in members.items():
                stack.enter_context(mock.patch.object(place.kind, name, member))
            yield

    return plant


def wrapping(name: str, wrapper: Callable[..., Any]) -> Plant:
    """Return a plant that puts `wrapper(original, self, *arguments)` around a method."""

    @contextlib.contextmanager
    def plant(place: Place) -> Iterator[None]:
        original = getattr(place.kind, name)

        def wrapped(self: OmniPlatform, *args: Any, **options: Any) -> Any:
            return wrapper(original, self, *args, **options)

        wrapped.__signature__ = _signature(original)  # type: ignore[attr-defined]
        with mock.patch.object(place.kind, name, wrapped):
            yield

    return plant


def _signature(function: Callable[..., Any]) -> Any:
    import inspect

    return inspect.signature(function)


def faults(*names: str, hang_seconds: float = 0.2) -> Plant:
    """Return a plant that gives the simulated device these faults."""
    return lambda place: place.simulation.faulty(*names, hang_seconds=hang_seconds)


def both(*plants: Plant) -> Plant:
    """Return a plant of several."""

    @contextlib.contextmanager
    def plant(place: Place) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for each in plants:
                stack.enter_context(each(place))
            yield

    return plant
