"""Percentiles, spreads and intervals, against numbers that are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mineru_cli.bench import statistics
from mineru_cli.bench.statistics import (
    MIN_PAIRS,
    MIN_REPEATS,
    Bootstrap,
    Ratio,
    mean,
    median,
    percentile,
    repeats_to_settle,
    spread,
)

SEED = ("0a1b", "2c3d")


def noise(seed: int, repeats: int, deviation: float) -> list[float]:
    return list(np.random.default_rng(seed).normal(1, deviation, repeats))


@pytest.mark.parametrize("statistic", [mean, median, spread, lambda values: percentile(values, 95)])
def test_an_empty_sample_is_no_number(statistic: Callable[[list[float]], float | None]) -> None:
    assert statistic([]) is None


def test_percentiles_are_linear_between_the_nearest_samples() -> None:
    values = [float(value) for value in range(1, 11)]
    assert [percentile(values, percent) for percent in (50, 90, 95, 99)] == pytest.approx([5.5, 9.1, 9.55, 9.91])
    assert percentile([7.0], 99) == 7.0


def test_spread_goes_from_the_smallest_to_the_largest_as_a_share_of_the_median() -> None:
    assert spread([9.0, 10.0, 11.0]) == pytest.approx(0.2)
    assert spread([10.0]) is None


def test_equal_hashes_give_equal_intervals() -> None:
    base, new = noise(1, 5, 0.1), noise(2, 5, 0.1)
    assert Bootstrap(SEED, 5, 5).mean(base, new) == Bootstrap(SEED, 5, 5).mean(base, new)
    assert Bootstrap(SEED, 5, 5).mean(base, new) != Bootstrap(("0a1b", "2c3e"), 5, 5).mean(base, new)


def test_one_repeat_has_a_ratio_without_an_interval() -> None:
    assert Bootstrap(SEED, 1, 5).mean([2.0], [3.0] * 5) == Ratio(1.5, None, None, 1)


@pytest.mark.parametrize(("base", "new"), [([], [1.0]), ([1.0], []), ([0.0, 1.0], [1.0, 1.0])])
def test_what_was_not_measured_or_is_zero_has_no_ratio(base: list[float], new: list[float]) -> None:
    assert Bootstrap(SEED, max(1, len(base)), max(1, len(new))).mean(base, new) is None


@pytest.mark.parametrize("repeats", [4, 8])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(repeats: int) -> None:
    """The plain percentiles of four repeats hold it in 87 % of cases."""
    hits = 0
    for trial in range(400):
        found = Bootstrap((f"{trial:x}",), repeats, repeats).mean(
            noise(2 * trial, repeats, 0.05), noise(2 * trial + 1, repeats, 0.05)
        )
        assert found is not None and found.low is not None and found.high is not None
        hits += found.low <= 1 <= found.high
    assert 0.92 <= hits / 400 <= 0.98


def interval(repeats: int, *, pairs: bool) -> float:
    """Width of the interval where both sides went through the same weather."""
    weather = np.random.default_rng(5).normal(1, 0.2, repeats)
    base, new = list(weather * noise(1, repeats, 0.01)), list(weather * noise(2, repeats, 0.01))
    found = Bootstrap(SEED, repeats, repeats, pairs=pairs).mean(base, new)
    assert found is not None and found.low is not None and found.high is not None
    return found.high - found.low


def test_what_hits_both_of_a_pair_does_not_widen_the_interval() -> None:
    assert interval(MIN_PAIRS, pairs=True) < interval(MIN_PAIRS, pairs=False) / 5


def test_too_few_pairs_are_not_taken_as_pairs() -> None:
    assert interval(MIN_PAIRS - 1, pairs=True) == interval(MIN_PAIRS - 1, pairs=False)


def test_drawn_percentiles_are_those_of_the_repeats_that_were_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    repeats = [[1.0, 5.0, 2.0], [4.0], [9.0, 3.0]]  # of unequal length, as when documents failed
    draws = np.random.default_rng(3).integers(3, size=(50, 3))
    monkeypatch.setattr(statistics, "_BLOCK", 27)  # three draws at a time
    for percent in (50, 95, 100):
        expected = [np.percentile([value for index in draw for value in repeats[index]], percent) for draw in draws]
        assert statistics._drawn_percentiles(repeats, draws, percent) == pytest.approx(expected)


def test_a_percentile_of_all_documents_has_a_ratio_and_an_interval() -> None:
    chance = np.random.default_rng(4)
    base = [list(chance.lognormal(0, 0.3, 20)) for _ in range(6)]
    found = Bootstrap(SEED, 6, 6).percentile(base, [[2 * value for value in repeat] for repeat in base], 95)
    assert found is not None and found.low is not None and found.high is not None
    assert found.value == pytest.approx(2)
    assert 1 < found.low < 2 < found.high < 4
    assert Bootstrap(SEED, 6, 6).percentile(base, [[]] * 6, 95) is None
    assert Bootstrap(SEED, 6, 6).percentile([[0.0]] * 6, base, 95) is None


def test_four_times_the_repeats_halve_the_interval() -> None:
    wide = Ratio(value=1.30, low=1.20, high=1.41, repeats=5)
    needed = repeats_to_settle(wide, 1.25)
    assert needed == 21  # log(1.30 / 1.20) is 2.04 times log(1.30 / 1.25)


def test_an_effect_on_the_target_is_not_settled_by_repeats() -> None:
    assert repeats_to_settle(Ratio(1.2501, 1.15, 1.36, 5), 1.25) is None
    assert repeats_to_settle(Ratio(1.25, 1.15, 1.36, 5), 1.25) is None
    assert repeats_to_settle(Ratio(1.3, None, None, 1), 1.25) is None


def test_no_advice_goes_below_what_an_interval_needs() -> None:
    assert repeats_to_settle(Ratio(2.0, 1.24, 3.0, 2), 1.25) == MIN_REPEATS
