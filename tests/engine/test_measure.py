"""Intervals: by hand, against scipy, and by how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from anypo.engine.measure import average, paired, ratio, share, sign_test, student
from anypo.engine.metrics import interval


def test_of_zeros_and_ones_it_is_wilsons():
    found = share([1.0] * 52 + [0.0] * 8, draws=8)
    assert (found.low, found.high) == pytest.approx(interval(52, 60))
    assert (found.value, found.count) == (52 / 60, 60)


def test_shares_that_lie_close_together_count_as_more_trials_but_not_more_than_were_drawn():
    # 40 values around 1/2 with variance 1/16, and a 0 and a 1: variance (40/16 + 1/2)/42 = 1/14
    found = share([0.25, 0.75] * 20, draws=8)
    assert (found.low, found.high) == pytest.approx(interval(70, 140))
    found = share([0.25, 0.75] * 20, draws=2)
    assert (found.low, found.high) == pytest.approx(interval(40, 80))


def test_nothing_is_certain_without_spread():
    for value in (0.0, 1.0):
        found = share([value] * 20, draws=8)
        assert (found.low, found.high) == pytest.approx(interval(20 * value, 20))
        assert found.high - found.low > 0.1
    found = share([0.5] * 6, draws=8)
    assert (found.low, found.high) == pytest.approx(interval(12, 24))
    assert share([]).count == 0


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.3), (2, 6), (0.05, 1.0), (50, 50)])
def test_the_interval_holds_the_truth_in_nineteen_of_twenty(a, b):
    """Questions of Beta-distributed difficulty, 8 answers each: the mean of the shares right."""
    rng, truth, tries = np.random.default_rng(0), a / (a + b), 2000
    held = 0
    for _ in range(tries):
        values = rng.binomial(8, rng.beta(a, b, 60)) / 8
        found = share(list(values), draws=8)
        held += found.low <= truth <= found.high
    assert 0.935 <= held / tries <= 0.99


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 99, 1000])
def test_student(freedom):
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=3e-3)


def test_an_average_has_students_interval():
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    found = average(values)
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high), rel=3e-3)
    assert average([3.0]).high == math.inf


def test_a_ratio_is_the_mean_over_tokens_with_the_spread_of_rows():
    even = ratio([2.0, 4.0, 9.0], [1, 1, 1])
    assert even == average([2.0, 4.0, 9.0])
    found = ratio([2.0, 12.0, 9.0], [1, 4, 3])
    assert found.value == 23 / 8
    rest = [2 - 23 / 8, 12 - 23 / 2, 9 - 69 / 8]
    half = student(2) * np.std(rest, ddof=1) / np.sqrt(3) / (8 / 3)
    assert found.high - found.value == pytest.approx(half)
    assert ratio([], []).count == 0


def test_a_ratio_holds_the_truth_in_nineteen_of_twenty():
    rng, held, tries = np.random.default_rng(0), 0, 2000
    for _ in range(tries):
        counts = rng.integers(1, 20, 40)
        sums = counts * 1.5 + rng.normal(0, 1, 40) * counts
        found = ratio(list(sums), list(counts))
        held += found.low <= 1.5 <= found.high
    assert 0.925 <= held / tries <= 0.975


def test_pairs():
    found = paired([1, 1, 1, 1, 0, 1, 0.5], [0, 0, 0, 0, 1, 1, 0.5])
    assert (found.wins, found.losses, found.count) == (4, 1, 7)
    assert found.difference == pytest.approx(3 / 7)
    assert found.p == pytest.approx(stats.binomtest(1, 5).pvalue)
    assert found.low < 0 < found.high
    with pytest.raises(ValueError, match="zip"):
        paired([1.0], [])


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (5, 5), (10, 0), (3, 9)])
def test_the_sign_test_is_exact(wins, losses):
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected)
