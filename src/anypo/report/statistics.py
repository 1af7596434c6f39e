"""What several seeds say of methods: typical scores, differences with intervals, chances.

Which interval stands where, and what it covers, is measured in docs/decisions/0009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from anypo.engine.measure import Measure, share
from anypo.engine.metrics import interval

LEVEL = 0.95
LEAST = 5
"""Seeds below which the middle is the mean, with Student's interval: too few to resample."""

RESAMPLES = 9999
POWER = 0.8
MOST_SEEDS = 1000

Array = np.ndarray
Bounds = tuple[float, float]
FREE: Bounds = (-math.inf, math.inf)


def middle(values: Any, axis: int = -1) -> Array:
    """The interquartile mean: a quarter, rounded down, is cut off at each end; the rest averaged.

    Below five values it is their mean. Reference: 2108.13264.
    """
    values = np.asarray(values, float)
    if values.shape[axis] < LEAST:
        return values.mean(axis)
    return stats.trim_mean(values, 0.25, axis=axis)


def bands(values: Any, bounds: Bounds = FREE) -> tuple[Array, Array, Array]:
    """Interquartile means along the last axis, and the ends of their 95 % intervals.

    From five values on the intervals are those of the percentile bootstrap over seeds, expanded for
    few of them: its tails are `Φ(−√(n/(n−1))·t)`, where `t` is Student's 97.5 % quantile, instead
    of 2.5 %. Below five they are Student's. Drawn from a fixed stream, so the same values give the
    same interval. Shapes: `[…, n]` → three of `[…]`.
    Reference: Hesterberg (2015), The American Statistician 69, 371 to 386.
    """
    values = np.asarray(values, float)
    n, centre = values.shape[-1], middle(values)
    if n < LEAST:
        error = values.std(-1, ddof=1) / math.sqrt(n) if n > 1 else np.full_like(centre, math.inf)
        half = stats.t.ppf(0.5 + LEVEL / 2, max(n - 1, 1)) * error
        return centre, *np.clip((centre - half, centre + half), *bounds)
    found = stats.bootstrap(
        (values,),
        middle,
        axis=-1,
        vectorized=True,
        method="percentile",
        n_resamples=RESAMPLES,
        batch=500,
        confidence_level=1 - 2 * _tail(n),
        rng=np.random.default_rng(0),
    ).confidence_interval
    return centre, *np.clip((found.low, found.high), *bounds)


def _tail(n: int) -> float:
    """What the expanded bootstrap leaves out at each end."""
    return float(stats.norm.sf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.5 + LEVEL / 2, n - 1)))


def typical(values: Sequence[float], bounds: Bounds = FREE) -> Measure:
    """The interquartile mean of one score per seed, with its 95 % interval, see `bands`."""
    centre, low, high = bands(values, bounds)
    return Measure(float(centre), float(low), float(high), len(values))


def mean(values: Sequence[float], bounds: Bounds = FREE) -> Measure:
    """The mean of one score per seed, with Student's 95 % interval."""
    n, centre = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Measure(centre, *bounds, 1)
    half = float(stats.t.ppf(0.5 + LEVEL / 2, n - 1)) * float(np.std(values, ddof=1)) / n**0.5
    low, high = np.clip((centre - half, centre + half), *bounds)
    return Measure(centre, float(low), float(high), n)


@dataclass(frozen=True)
class Pair:
    """Two methods: how much more the first scores than the second, and how likely it is better.

    Parameters
    ----------
    difference : mean of the first minus mean of the second. The intervals of all pairs of a
        comparison hold the truth together in 95 of 100 comparisons (Bonferroni).
    chance : probability that a run of the first scores better than one of the second, a tie
        counting half, with a 95 % interval of its own.
    p : two-sided, of this pair alone, to be held against `1 − level`.
    level : of the interval of the difference.
    paired : whether it rests on differences seed by seed, with the same questions on both sides.
    spread : standard deviation of what the difference is a mean of.
    better : 1 where more is better, −1 where less is.
    """

    first: str
    second: str
    difference: Measure
    chance: Measure
    p: float
    level: float
    paired: bool
    spread: float
    better: int = 1

    @property
    def more(self) -> int:
        """Further seeds that would show a difference of this size, see `more_seeds`."""
        return more_seeds(self.difference.value, self.spread, self.difference.count, self.level)

    @property
    def ahead(self) -> str:
        """The method whose lead the interval leaves no doubt of; empty for none."""
        low, high = sorted((self.better * self.difference.low, self.better * self.difference.high))
        return self.first if low > 0 else self.second if high < 0 else ""


def pairs(
    scores: Mapping[str, Mapping[int, float]], better: int = 1, widest: float = math.inf
) -> list[Pair]:
    """Every two methods against each other; `scores` are method → seed → score.

    Where the methods ran on the same seeds (at least half of them) they are compared seed by seed
    (Student's t of the differences), which takes out what the questions and the start make hard for
    both; else as independent samples (Welch's t). With k methods there are m = k(k − 1)/2 pairs,
    and each interval is one of level `1 − 0.05/m`, so that a lead which it shows is not found by
    looking at many pairs. No interval goes beyond ±`widest`. Methods without a score are left out.
    """
    known = {name: by_seed for name, by_seed in scores.items() if by_seed}
    both = list(combinations(known, 2))
    level = 1 - (1 - LEVEL) / max(len(both), 1)
    made = (_pair(a, b, known[a], known[b], level, better) for a, b in both)
    return [replace(p, difference=_within(p.difference, widest)) for p in made]


def _within(m: Measure, widest: float) -> Measure:
    """The same with finite ends kept within bounds; infinite ones say that there is no interval."""
    if not math.isfinite(m.low):
        return m
    return replace(m, low=max(m.low, -widest), high=min(m.high, widest))


def _pair(
    first: str,
    second: str,
    a: Mapping[int, float],
    b: Mapping[int, float],
    level: float,
    better: int,
) -> Pair:
    shared = sorted(a.keys() & b.keys())
    paired = len(shared) >= max(2, min(len(a), len(b)) / 2)
    if paired:
        differences = [a[s] - b[s] for s in shared]
        found, spread = _student(differences, level), _spread(differences)
        chance = share([_won(better * d) for d in differences])
    else:
        x, y = list(a.values()), list(b.values())
        found, chance = _welch(x, y, level), independent_chance(x, y, better)
        spread = math.hypot(_spread(x), _spread(y))
    return Pair(first, second, found[0], chance, found[1], level, paired, spread, better)


def _won(x: float) -> float:
    return 1.0 if x > 0 else 0.5 if x == 0 else 0.0


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _student(differences: Sequence[float], level: float) -> tuple[Measure, float]:
    """Mean difference with Student's interval, and p; no interval where nothing varies."""
    n, centre = len(differences), math.fsum(differences) / len(differences)
    if n < 2 or _spread(differences) < 1e-12:
        return Measure(centre, *FREE, n), 1.0
    test = stats.ttest_1samp(differences, 0.0)
    found = test.confidence_interval(level)
    return Measure(centre, float(found.low), float(found.high), n), float(test.pvalue)


def _welch(x: Sequence[float], y: Sequence[float], level: float) -> tuple[Measure, float]:
    """The same of independent samples."""
    n, centre = min(len(x), len(y)), math.fsum(x) / len(x) - math.fsum(y) / len(y)
    if n < 2 or _spread(x) + _spread(y) < 1e-12:
        return Measure(centre, *FREE, n), 1.0
    test = stats.ttest_ind(x, y, equal_var=False)
    found = test.confidence_interval(level)
    return Measure(centre, float(found.low), float(found.high), n), float(test.pvalue)


def independent_chance(x: Sequence[float], y: Sequence[float], better: int = 1) -> Measure:
    """P(x better than y) + ½ P(tie) over all pairs of independent runs, with a 95 % interval.

    It is Wilson's interval of as many trials as the smaller sample has runs: the variance of the
    share of pairs is at most `p(1 − p)/min(n, m)`, so the interval is wide rather than narrow, and
    does not shrink to a point where every run of one beats every run of the other.
    Reference: Birnbaum & Klose (1957), Annals of Mathematical Statistics 28, for the bound.
    """
    n = min(len(x), len(y))
    p = float(np.mean([_won(better * (a - b)) for a in x for b in y]))
    return Measure(p, *interval(p * n, n), n)  # pyright: ignore[reportArgumentType]


def more_seeds(difference: float, spread: float, n: int, level: float) -> int:
    """How many further seeds would show a difference of this size in 4 of 5 comparisons.

    The power of Student's t (noncentral t) at `difference` and `spread`, taken as the truth, which
    they are not: an order of size. 0 where there is no difference, no spread, or above 1000 seeds.
    """
    if not difference or not spread:
        return 0
    size = np.arange(2, MOST_SEEDS + 1)
    limit = stats.t.ppf(0.5 + level / 2, size - 1)
    power = stats.nct.sf(limit, size - 1, abs(difference) / spread * np.sqrt(size))
    enough = size[np.nan_to_num(power, nan=1.0) >= POWER]
    return max(int(enough[0]) - n, 1) if len(enough) else 0
