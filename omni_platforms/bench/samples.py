"""`Samples`: what one way took in each round, and what that says. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

NOISY_SPREAD = 0.3
"""A spread above this share of the median says that the machine did something else, too."""


@dataclass(frozen=True)
class Samples:
    """The times of one way in seconds, one a round, in the order of the rounds.

    Raises `ValueError` when there is none.
    """

    times: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times:
            raise ValueError("Samples need at least one time")

    @property
    def median(self) -> float:
        """The middle time."""
        return statistics.median(self.times)

    @property
    def low(self) -> float:
        """The 10th percentile."""
        return quantile(self.times, 0.1)

    @property
    def high(self) -> float:
        """The 90th percentile."""
        return quantile(self.times, 0.9)

    @property
    def spread(self) -> float:
        """What lies between the two percentiles, as a share of the median; 0 for a median of 0."""
        return (self.high - self.low) / self.median if self.median else 0.0

    @property
    def noisy(self) -> bool:
        """Whether the spread is above `NOISY_SPREAD`."""
        return self.spread > NOISY_SPREAD

    def ratios_to(self, base: Samples) -> Samples:
        """Return this way's time over `base`'s, round by round.

        What slows a whole round down slows both, and leaves their ratio. Raises
        `ValueError` when the two have not the same rounds, or a time of `base` is not positive.
        """
        if len(self.times) != len(base.times):
            raise ValueError(f"{len(self.times)} rounds have no ratios to {len(base.times)} rounds")
        if min(base.times) <= 0:
            raise ValueError("there is no ratio to a time that is not positive")
        return Samples(tuple(a / b for a, b in zip(self.times, base.times, strict=True)))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lie, between neighbours in proportion.

    Raises `ValueError` for no values, or a share outside 0 to 1.
    """
    if not values or not 0 <= share <= 1:
        raise ValueError(f"there is no {share} quantile of {len(values)} values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    # In this form neither rounding nor infinite neighbours leave the two values' range.
    part = place - below
    between = ordered[below] + part * (ordered[above] - ordered[below])
    return min(max(between, ordered[below]), ordered[above])
