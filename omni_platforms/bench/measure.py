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
    both = interleaved_figures(
        {name: _one_figure(way) for name, way in ways.items()}, rounds, warmup
    )
    return both[""]


def interleaved_figures(
    ways: Mapping[str, Callable[[], Mapping[str, float]]], rounds: int, warmup: int = WARMUP
) -> dict[str, dict[str, Samples]]:
    """Measure as `interleaved` where a call gives several figures; return them by figure and way.

    A figure that only some ways give is returned for those.
    """
    if not ways or rounds < 1 or warmup < 0:
        raise ValueError(f"{len(ways)} ways and {rounds} rounds ({warmup} to warm up) measure none")
    times: dict[str, dict[str, list[float]]] = {}
    for number in range(warmup + rounds):
        order = list(ways.items())
        if number % 2:
            order.reverse()
        for name, way in order:
            for figure, taken in way().items():
                if number >= warmup:
                    times.setdefault(figure, {name: [] for name in ways})[name].append(taken)
    return {
        figure: {name: Samples(tuple(taken)) for name, taken in by_way.items() if taken}
        for figure, by_way in times.items()
    }


def _one_figure(way: Callable[[], float]) -> Callable[[], Mapping[str, float]]:
    return lambda: {"": way()}
