"""`interleaved`: several ways of doing one thing, measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omni_platforms.bench.samples import Samples

WARMUP = 2


def interleaved(
    ways: Mapping[str, Callable[[], float]], rounds: int, warmup: int = WARMUP
) -> dict[str, Samples]:
    """Measure each way once a round, in the order A B .. B A, and return the times by way.

    Each callable does its work and returns the seconds that count, so it may set
    up and check outside of its clock. Every other round runs in the opposite order:
    a machine that gets slower, or a way that leaves the caches to the next, does not
    favour one. `warmup` rounds come first and are thrown away.

    Blocks until all is done; an exception of a way ends the measurement. Raises
    `ValueError` for no ways or fewer than one round.
    """
    if not ways or rounds < 1 or warmup < 0:
        raise ValueError(f"{len(ways)} ways and {rounds} rounds ({warmup} to warm up) measure none")
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(warmup + rounds):
        order = list(ways.items())
        if number % 2:
            order.reverse()
        for name, way in order:
            taken = way()
            if number >= warmup:
                times[name].append(taken)
    return {name: Samples(tuple(taken)) for name, taken in times.items()}
