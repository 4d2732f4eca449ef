"""The order of a measurement, and the rows that come of it."""

from __future__ import annotations

import pytest

from omni_platforms.bench.measure import interleaved
from omni_platforms.bench.rows import Target, rows_from
from omni_platforms.bench.samples import Samples

CASE = {"part": "a part", "bytes": 8}


def test_the_ways_take_turns_and_every_other_round_runs_backwards() -> None:
    calls: list[str] = []

    def way(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    samples = interleaved({name: lambda name=name: way(name) for name in "abc"}, rounds=3, warmup=1)
    assert "".join(calls) == "abc" + "cba" + "abc" + "cba"
    assert samples["a"].times == (6.0, 7.0, 12.0)  # the first round was the warm-up
    assert samples["c"].times == (4.0, 9.0, 10.0)


def test_drift_of_the_machine_cancels_out() -> None:
    """Each call takes longer than the one before: in one order only, `b` would look slower."""
    clock = iter(range(1000, 2000))
    ways = {name: lambda: float(next(clock)) for name in "ab"}
    samples = interleaved(ways, rounds=20, warmup=0)
    forth_and_back = [b - a for a, b in zip(samples["a"].times, samples["b"].times, strict=True)]
    assert sum(forth_and_back) == 0


def test_a_way_that_fails_ends_the_measurement() -> None:
    def broken() -> float:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        interleaved({"good": lambda: 1.0, "broken": broken}, rounds=1)


@pytest.mark.parametrize("wrong", [({}, 1), ({"a": lambda: 1.0}, 0)])
def test_nothing_to_measure_is_refused(wrong: tuple[dict[str, object], int]) -> None:
    with pytest.raises(ValueError, match="measure none"):
        interleaved(*wrong)  # type: ignore[arg-type]


def samples() -> dict[str, Samples]:
    return {
        "limit": Samples((1.0, 2.0, 3.0)),
        "common": Samples((40.0, 60.0, 180.0)),
        "ours": Samples((1.1, 2.4, 3.0)),
    }


def test_ratios_are_medians_of_rounds_and_not_ratios_of_medians() -> None:
    rows = rows_from(samples(), benchmark="b", case=CASE, base="limit")
    by_way = {row.way: row for row in rows}
    assert by_way["limit"].ratio is None
    assert by_way["limit"].base is None
    assert by_way["common"].ratio == 40.0  # of 40, 30, 60; the ratio of the medians is 30
    assert by_way["ours"].ratio == pytest.approx(1.1)
    assert by_way["ours"].seconds == 2.4
    assert by_way["ours"].rounds == 3
    assert {row.met for row in rows} == {None}


@pytest.mark.parametrize(
    ("way", "target", "met"),
    [
        ("ours", Target(1.10001, "ratio at most"), True),
        ("ours", Target(1.05, "ratio at most"), False),
        ("ours", Target(2.4, "seconds at most"), True),
        ("ours", Target(2.3, "seconds at most"), False),
        ("common", Target(25.0, "ratio at least", base="ours"), True),
        ("common", Target(37.0, "ratio at least", base="ours"), False),
        ("limit", Target(3.0, "seconds at most"), True),
    ],
)
def test_a_target_is_met_or_missed(way: str, target: Target, met: bool) -> None:
    rows = rows_from(samples(), benchmark="b", case=CASE, base="limit", targets={way: target})
    (row,) = [row for row in rows if row.way == way]
    assert row.met is met
    assert (row.target, row.target_of) == (target.value, target.of)
    if target.base is not None:
        assert row.base == target.base


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": "nobody"},
        {"base": "limit", "targets": {"nobody": Target(1.0, "ratio at most")}},
        {"base": "limit", "targets": {"ours": Target(1.0, "ratio at most", base="nobody")}},
        {"base": "limit", "notes": {"nobody": "?"}},
    ],
)
def test_a_way_that_was_not_measured_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not measured: nobody"):
        rows_from(samples(), benchmark="b", case=CASE, **wrong)  # type: ignore[arg-type]


def test_a_ratio_without_a_base_cannot_have_a_target() -> None:
    targets = {"ours": Target(1.0, "ratio at most")}
    with pytest.raises(ValueError, match="needs a base"):
        rows_from(samples(), benchmark="b", case=CASE, base=None, targets=targets)
