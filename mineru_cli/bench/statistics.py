"""Statistics of benchmark samples: plain numbers in, plain numbers out.

An empty sample has no percentile, no mean and no spread: the answer is ``None``, never 0.

An interval of 95 % is a percentile bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter
13) with its ends moved out; it is neither bias-corrected nor accelerated (BCa):

1. What is drawn are whole repeats, each with all of its documents: of each side as many as it has, with replacement.
   The sides are drawn independently; with pairs, which need the same number of at least six repeats on both, a draw has
   the same repeats on both.
2. There are 4000 draws, by numpy's default generator (PCG64), seeded with the hashes of both reports: the same two
   reports have the same intervals. Every statistic gets the same draws.
3. Of each draw the statistic is computed on both sides, and new is divided by base. A percentile is that of all samples
   of the drawn repeats together, a mean is that of one number per repeat.
4. The ends are quantiles of these ratios. Plain ones, at 2.5 and 97.5 %, lie too close together with few repeats: those
   of four cover the truth in 87 % of simulated cases. They are taken at Φ(−t·√(k/(k−1))) and one minus that, where k is
   the number of repeats of the side that has fewer, Φ the normal distribution, and t the 97.5th percentile of Student's
   t with 2(k−1) degrees of freedom, k−1 with pairs (Hesterberg, "What Teachers Should Know About the Bootstrap", The
   American Statistician 69:4, 2015, section 5.3). Then they cover 93 to 95 % from four repeats on.

The scatter of the documents is in the repeats already. Drawing documents once more inside a drawn repeat counts it
twice: such an interval covers the truth in 99 to 100 % of simulated cases, and needs more repeats to decide anything
(Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8, advise against it).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = (
    "MIN_PAIRS",
    "MIN_REPEATS",
    "NOISY",
    "PERCENTILES",
    "Bootstrap",
    "Ratio",
    "mean",
    "median",
    "percentile",
    "repeats_to_settle",
    "spread",
)

PERCENTILES = (50, 90, 95, 99)
NOISY = 0.05
"""Spread of the repeats above which a machine counts as noisy."""
MIN_REPEATS = 4
"""Fewer cannot carry 95 %: by chance alone all of three repeats beat all of three others in 2/C(6,3) = 10 % of cases,
all of four in 2/C(8,4) = 3 %."""
MIN_PAIRS = 6
"""Of fewer pairs all go the same way too often by chance: five in 2/2⁵ = 6 % of cases, six in 3 %."""

_DRAWS = 4000
_BLOCK = 4_000_000
"""Numbers held at once while percentiles are drawn."""
_MOST_REPEATS = 200
"""An estimate above this is no advice."""

_Floats: TypeAlias = NDArray[np.float64]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The percentile, linear between the two nearest samples (numpy's default, number 7 of Hyndman and Fan)."""
    return float(np.percentile(values, percent)) if len(values) else None


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean."""
    return math.fsum(values) / len(values) if values else None


def median(values: Sequence[float]) -> float | None:
    """The 50th percentile."""
    return percentile(values, 50)


def spread(values: Sequence[float]) -> float | None:
    """From the smallest to the largest, as a share of the median; unknown for fewer than two values."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle and len(values) > 1 else None


@dataclass(frozen=True, slots=True)
class Ratio:
    """New over base.

    :ivar low: lower end of the 95 % interval; unknown with one repeat.
    :ivar repeats: of the side that has fewer.
    """

    value: float
    low: float | None
    high: float | None
    repeats: int


class Bootstrap:
    """Draws of repeats, the same for every statistic of one pair of conditions.

    :param seed: hexadecimal hashes; the same ones give the same intervals.
    :param base: number of repeats.
    :param new: number of repeats.
    :param pairs: whether equal repeats belong together, because they had their documents in the same order and perhaps
        ran in turn. What hits both of a pair then does not widen the interval.
    """

    def __init__(self, seed: Sequence[str], base: int, new: int, *, pairs: bool = False) -> None:
        generator = np.random.default_rng([int(part, 16) for part in seed])
        paired = pairs and base == new >= MIN_PAIRS
        self._repeats = min(base, new)
        self._freedom = self._repeats - 1 if paired else 2 * (self._repeats - 1)
        self._base = generator.integers(base, size=(_DRAWS, base))
        self._new = self._base if paired else generator.integers(new, size=(_DRAWS, new))

    def mean(self, base: Sequence[float], new: Sequence[float]) -> Ratio | None:
        """Ratio of the means of one number per repeat; none unless all are positive."""
        if not base or not new or min(*base, *new) <= 0:
            return None
        old, fresh = np.asarray(base, dtype=float), np.asarray(new, dtype=float)
        drawn = fresh[self._new].mean(axis=1) / old[self._base].mean(axis=1)
        return self._ratio(float(fresh.mean() / old.mean()), drawn)

    def percentile(
        self, base: Sequence[Sequence[float]], new: Sequence[Sequence[float]], percent: float
    ) -> Ratio | None:
        """Ratio of a percentile over the samples of all repeats; none unless each has samples and all are positive.

        :param base: for each repeat its samples.
        :param new: for each repeat its samples.
        """
        if not all(base) or not all(new) or min(chain(*base, *new)) <= 0:
            return None
        old, fresh = (float(np.percentile(list(chain(*repeats)), percent)) for repeats in (base, new))
        drawn = _drawn_percentiles(new, self._new, percent) / _drawn_percentiles(base, self._base, percent)
        return self._ratio(fresh / old, drawn)

    def _ratio(self, value: float, drawn: _Floats) -> Ratio:
        if self._repeats < 2:
            return Ratio(value, None, None, self._repeats)
        tail = _tail(self._repeats, self._freedom)
        low, high = np.quantile(drawn, (tail, 1 - tail))
        return Ratio(value, float(low), float(high), self._repeats)


def repeats_to_settle(ratio: Ratio, target: float) -> int | None:
    """How many repeats would take the interval off the target, if the effect stays what it is.

    :return: none without an interval, or where the effect lies too near the target for a sensible number.
    """
    if ratio.low is None or ratio.high is None:
        return None
    reach = math.log(ratio.value / ratio.low if ratio.value > target else ratio.high / ratio.value)
    distance = abs(math.log(ratio.value / target))
    if distance * math.sqrt(_MOST_REPEATS / ratio.repeats) < reach:  # the interval shrinks as 1/√repeats
        return None
    return max(MIN_REPEATS, math.ceil(ratio.repeats * (reach / distance) ** 2))


def _drawn_percentiles(repeats: Sequence[Sequence[float]], draws: NDArray[np.int64], percent: float) -> _Floats:
    """The percentile of each draw. Repeats may differ in length: missing places are NaN, which sort to the end."""
    table = np.full((len(repeats), max(map(len, repeats))), np.nan)
    for row, samples in zip(table, repeats, strict=True):
        row[: len(samples)] = samples
    lengths = np.asarray([len(samples) for samples in repeats])
    return np.concatenate(list(_percentile_blocks(table, lengths, draws, percent / 100)))


def _percentile_blocks(
    table: _Floats, lengths: NDArray[np.int64], draws: NDArray[np.int64], share: float
) -> Iterator[_Floats]:
    step = max(1, _BLOCK // table.size)
    for start in range(0, len(draws), step):
        chosen = draws[start : start + step]
        samples = np.sort(table[chosen].reshape(len(chosen), -1), axis=1)
        place = share * (lengths[chosen].sum(axis=1) - 1)
        below = np.floor(place).astype(np.int64)
        above = np.ceil(place).astype(np.int64)
        lower = np.take_along_axis(samples, below[:, None], axis=1)[:, 0]
        upper = np.take_along_axis(samples, above[:, None], axis=1)[:, 0]
        yield lower + (place - below) * (upper - lower)


def _tail(repeats: int, freedom: int) -> float:
    """Share of the draws to leave out at each end, for 95 % with so few repeats."""
    normal = NormalDist()
    return normal.cdf(-_student_t(freedom) * math.sqrt(repeats / (repeats - 1)))


def _student_t(freedom: int) -> float:
    """The 97.5th percentile of Student's t, by Abramowitz and Stegun 26.7.5: within 0.4 % from five degrees on."""
    z = NormalDist().inv_cdf(0.975)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, start=1))
