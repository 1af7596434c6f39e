"""Numbers measured over questions or episodes, with their 95 % intervals, alone and in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anypo.engine.metrics import interval

Z = 1.959964


@dataclass(frozen=True)
class Measure:
    """A mean over `count` questions (or episodes, points), with its 95 % interval."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Paired:
    """How much better the first of two is on the same questions: mean difference, 95 % interval.

    `wins` and `losses` count the questions on which it was better and worse; `p` is that of the
    exact sign test on these (McNemar's, where a question is right or wrong).
    """

    difference: float
    low: float
    high: float
    wins: int
    losses: int
    p: float
    count: int


def share(values: Sequence[float], draws: int = 1) -> Measure:
    """The mean of values in [0, 1], one per question, with a Wilson interval over questions.

    Wilson's interval of `m` independent trials, where `m = n · p(1 − p)/var` is the number of
    coins that would vary as much as these `n` values do: `n` for zeros and ones, more for shares
    that lie closer together, up to `n · draws`, where `draws` is how many independent answers a
    question had. For `p(1 − p)/var` a 0 and a 1 are added to the values, so that a few alike
    ones do not look certain. It stays in [0, 1] and never shrinks to a point; in simulations it
    holds the truth in 94 to 99 of 100 cases, where the percentile bootstrap fell to 76.
    Reference: Korn & Graubard (1998), Survey Methodology 24, for the effective number of trials.
    """
    n = len(values)
    if not n:
        return Measure(math.nan, 0.0, 1.0, 0)
    mean, more = math.fsum(values) / n, [*values, 0.0, 1.0]
    centre = math.fsum(more) / (n + 2)
    variance = math.fsum((x - centre) ** 2 for x in more) / (n + 2)
    trials = n * min(max(centre * (1 - centre) / variance, 1.0), draws)
    return Measure(mean, *interval(mean * trials, trials), n)


def average(values: Sequence[float]) -> Measure:
    """The mean of any numbers, one per question or episode, with Student's interval."""
    n = len(values)
    if not n:
        return Measure(math.nan, -math.inf, math.inf, 0)
    mean = math.fsum(values) / n
    if n == 1:
        return Measure(mean, -math.inf, math.inf, 1)
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half = student(n - 1) * sd / math.sqrt(n)
    return Measure(mean, mean - half, mean + half, n)


def ratio(sums: Sequence[float], counts: Sequence[float]) -> Measure:
    """`Σ sums / Σ counts` over rows, such as a mean over all tokens, with an interval over rows.

    The interval is that of the ratio estimator, `t · sd(s − R·c) / (mean c · √n)`: rows are drawn,
    and tokens come along with them.
    """
    total = math.fsum(counts)
    if not total:
        return Measure(math.nan, -math.inf, math.inf, len(sums))
    value, n = math.fsum(sums) / total, len(sums)
    spread = average([s - value * c for s, c in zip(sums, counts)])
    half = (spread.high - spread.value) * n / total
    return Measure(value, value - half, value + half, n)


def student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, to 3 digits from 3 degrees of freedom on.

    Up to 2 exact, then the expansion about the normal quantile (Abramowitz & Stegun 26.7.5).
    """
    if freedom <= 2:
        return (12.7062, 4.3027)[freedom - 1]
    z, v = Z, freedom
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / v**i for i, term in enumerate(terms))


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare two on the same questions, value by value; raises for lists of unequal length."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    mean = average(differences)
    return Paired(
        mean.value, mean.low, mean.high, wins, losses, sign_test(wins, losses), mean.count
    )


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p of so uneven a split under a fair coin, exactly: `2·P(X ≤ min)`, at most 1."""
    n, least = wins + losses, min(wins, losses)
    tail = sum(math.comb(n, i) for i in range(least + 1))
    return min(1.0, 2 * tail / 2**n)
