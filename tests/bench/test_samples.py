"""Percentiles, spread and ratios, over any times that a clock can give."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omni_platforms.bench.samples import NOISY_SPREAD, Samples, quantile

times = st.floats(min_value=1e-9, max_value=1e6)
many = st.lists(times, min_size=1, max_size=30).map(tuple)


@given(many)
def test_the_percentiles_enclose_the_median_and_lie_among_the_times(values: tuple[float]) -> None:
    samples = Samples(values)
    assert min(values) <= samples.low <= samples.median <= samples.high <= max(values)
    assert samples.spread >= 0
    assert samples.noisy == (samples.spread > NOISY_SPREAD)


@given(many, st.randoms())
def test_the_order_of_the_rounds_does_not_matter(values: tuple[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Samples(tuple(shuffled)).low == Samples(values).low
    assert Samples(tuple(shuffled)).median == Samples(values).median


@given(st.lists(times, min_size=2, max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_grow_with_their_share(values: list[float], one: float, other: float) -> None:
    assert quantile(values, min(one, other)) <= quantile(values, max(one, other))
    assert quantile(values, 0.5) == pytest.approx(statistics.median(values))
    assert (quantile(values, 0), quantile(values, 1)) == (min(values), max(values))


def test_the_percentiles_are_those_of_the_textbook() -> None:
    samples = Samples(tuple(float(number) for number in range(1, 12)))
    assert (samples.low, samples.median, samples.high) == (2.0, 6.0, 10.0)
    assert samples.spread == pytest.approx(8 / 6)


def test_steady_times_are_not_noisy_and_scattered_ones_are() -> None:
    assert not Samples((1.0, 1.01, 1.02, 0.99, 1.0)).noisy
    assert Samples((1.0, 1.0, 2.0, 3.0, 0.5)).noisy


@given(st.lists(st.tuples(times, times), min_size=1, max_size=20), st.floats(0.5, 100))
def test_a_round_that_is_slow_for_both_leaves_the_ratio(
    pairs: list[tuple[float, float]], slower: float
) -> None:
    ours, base = Samples(tuple(a for a, _ in pairs)), Samples(tuple(b for _, b in pairs))
    ratio = ours.ratios_to(base).median
    (first, *others), (base_first, *base_others) = ours.times, base.times
    disturbed = Samples((first * slower, *others)).ratios_to(
        Samples((base_first * slower, *base_others))
    )
    assert disturbed.median == pytest.approx(ratio)


@pytest.mark.parametrize("bad", [(), (1.0, 2.0, 3.0)])
def test_ratios_need_the_same_rounds(bad: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"rounds|at least one"):
        Samples((1.0, 2.0)).ratios_to(Samples(bad))


def test_there_is_no_ratio_to_nothing() -> None:
    with pytest.raises(ValueError, match="not positive"):
        Samples((1.0,)).ratios_to(Samples((0.0,)))
    with pytest.raises(ValueError, match="quantile"):
        quantile([1.0], 1.5)
