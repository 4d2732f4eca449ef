"""Checks of an executor's parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from omni_platforms import settings
from omni_platforms.engine.messages import Setup


def for_each_rank(
    setup: Setup, devices: Sequence[int] | None, output_rank: int | None
) -> list[Setup]:
    """Return the setup of each rank; with an `output_rank` only that one delivers outputs."""
    setups = []
    for rank in range(setup.world_size):
        delivers = output_rank in (None, rank)
        made = replace(
            setup,
            rank=rank,
            device_index=rank if devices is None else devices[rank],
            delivers=delivers,
            arena_shares=setup.world_size if output_rank is None else 1,
            arena_initial_bytes=setup.arena_initial_bytes if delivers else 0,
        )
        setups.append(made)
    return setups


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise `ValueError` for anything but one of a few words."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")


def check_counts(
    num_workers: int,
    output_rank: int,
    window: int,
    max_in_flight: int,
    devices: Sequence[int] | None,
) -> None:
    """Raise `ValueError` for counts that do not fit."""
    counts = {"num_workers": num_workers, "window": window, "max_in_flight": max_in_flight}
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is at least 1, not {count}")
    if not 0 <= output_rank < num_workers:
        raise ValueError(f"output_rank {output_rank} is no rank of {num_workers} workers")
    if devices is not None and len(devices) != num_workers:
        raise ValueError(f"{num_workers} workers need as many devices, not {len(devices)}")


def seconds(name: str, value: float | None, setting: str) -> float:
    """Return a time limit; its variable is read, and refused, even where it does not count."""
    default: float = settings.read(setting)
    if value is None:
        return default
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is a positive number of seconds, not {value!r}")
    return value
