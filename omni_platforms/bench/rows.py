"""Rows of a benchmark's result: a time, its ratio to a base of the same rounds, a target. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from omni_platforms.bench.samples import NOISY_SPREAD, Samples

Case = dict[str, "int | float | str"]
TargetOf = Literal["", "ratio at most", "ratio at least", "seconds at most"]


@dataclass(frozen=True)
class Target:
    """What a way should reach: `value` bounds what `of` names. `base` is the ratio's own base.

    One that is not `claimed` decides the base only.
    """

    value: float
    of: TargetOf
    base: str | None = None
    claimed: bool = True

    def met_by(self, seconds: float, ratio: float | None) -> bool:
        """Whether a row with these figures meets it. Raises `ValueError` without a ratio."""
        if self.of == "seconds at most":
            return seconds <= self.value
        if ratio is None:
            raise ValueError("a target for a ratio needs a base")
        return ratio >= self.value if self.of == "ratio at least" else ratio <= self.value


@dataclass(frozen=True)
class Row:
    """One way in one case. Times are seconds, sizes in `case` are bytes.

    `seconds` is the median of `rounds`, `low` and `high` the 10th and the 90th percentile.
    `ratio` is the median of the ratios to the way `base`, each taken in one round, and
    `ratio_low` and `ratio_high` are its percentiles. `target` bounds what
    `target_of` names, and `met` says whether the median is within it; all three are
    empty where nothing is aimed at.
    """

    benchmark: str
    case: Case
    way: str
    seconds: float
    low: float
    high: float
    rounds: int
    base: str | None = None
    ratio: float | None = None
    target: float | None = None
    met: bool | None = None
    note: str = ""
    ratio_low: float | None = None
    ratio_high: float | None = None
    target_of: TargetOf = ""

    @property
    def noisy(self) -> bool:
        """Whether the times spread by more than `NOISY_SPREAD` of their median."""
        return self.high - self.low > NOISY_SPREAD * self.seconds

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Count:
    """A figure that is not a time: allocations, page faults, bytes. `unit` says what it counts.

    `limit` is the most that it should be, and `met` says whether it is no more.
    """

    benchmark: str
    case: Case
    name: str
    value: float
    unit: str
    limit: float | None = None
    met: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


def rows_from(
    samples: Mapping[str, Samples],
    *,
    benchmark: str,
    case: Case,
    base: str | None,
    targets: Mapping[str, Target] | None = None,
    notes: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return one row for each way, with its ratio to `base`, or to its target's own base.

    A way that is its own base has no ratio. Raises `ValueError` for a base, a target
    or a note of a way that was not measured.
    """
    targets, notes = targets or {}, notes or {}
    bases = {way: _base_of(way, base, targets) for way in samples}
    unknown = {*targets, *notes, *filter(None, bases.values())} - set(samples)
    if unknown:
        raise ValueError(f"not measured: {', '.join(sorted(unknown))}")
    return [
        _row(way, samples, bases[way], benchmark, case, targets.get(way), notes.get(way, ""))
        for way in samples
    ]


def _base_of(way: str, base: str | None, targets: Mapping[str, Target]) -> str | None:
    target = targets.get(way)
    chosen = base if target is None or target.base is None else target.base
    return None if chosen == way else chosen


def _row(
    way: str,
    samples: Mapping[str, Samples],
    base: str | None,
    benchmark: str,
    case: Case,
    target: Target | None,
    note: str,
) -> Row:
    own = samples[way]
    ratios = None if base is None else own.ratios_to(samples[base])
    ratio = None if ratios is None else ratios.median
    aim = target if target is not None and target.claimed else None
    return Row(
        benchmark=benchmark,
        case=dict(case),
        way=way,
        seconds=own.median,
        low=own.low,
        high=own.high,
        rounds=len(own.times),
        base=base,
        ratio=ratio,
        target=None if aim is None else aim.value,
        met=None if aim is None else aim.met_by(own.median, ratio),
        note=note,
        ratio_low=None if ratios is None else ratios.low,
        ratio_high=None if ratios is None else ratios.high,
        target_of="" if aim is None else aim.of,
    )
