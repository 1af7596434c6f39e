"""Intervals over seeds hold the truth where it is known, and too narrow ones are noticed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from anypo.report import statistics
from anypo.report.statistics import (
    Pair,
    bands,
    independent_chance,
    mean,
    middle,
    more_seeds,
    pairs,
    typical,
)

QUESTIONS, TRIALS = 60, 1000


def comparison(rng, methods: int, seeds: int, gap: float) -> dict[str, dict[int, float]]:
    """Accuracies of methods whose true ones lie `gap` apart: hard seeds are hard for all."""
    hard = rng.normal(0, 0.05, seeds)
    found = {}
    for m in range(methods):
        true = np.clip(0.6 + m * gap + hard + rng.normal(0, 0.04, seeds), 0, 1)
        found[str(m)] = dict(enumerate(rng.binomial(QUESTIONS, true) / QUESTIONS))
    return found


def simulated(methods: int, gap: float, seeds: int = 5) -> list[list[Pair]]:
    """The pairs of many comparisons."""
    rng = np.random.default_rng(methods)
    return [pairs(comparison(rng, methods, seeds, gap)) for _ in range(TRIALS)]


def covered(runs: list[list[Pair]], gap: float, width: float = 1.0) -> float:
    """The share of comparisons in which every interval, made so much wider, holds the truth."""

    def holds(p: Pair) -> bool:
        true, d = gap * (int(p.first) - int(p.second)), p.difference
        return d.value + width * (d.low - d.value) <= true <= d.value + width * (d.high - d.value)

    return float(np.mean([all(map(holds, found)) for found in runs]))


@pytest.fixture(scope="module")
def two():
    """Comparisons of two methods, 4 points apart, on 5 seeds."""
    return simulated(2, 0.04)


@pytest.fixture(scope="module")
def three():
    """The same of three methods."""
    return simulated(3, 0.04)


def test_a_known_difference_lies_in_its_interval_in_95_of_100(two):
    assert 0.935 <= covered(two, 0.04) <= 0.97
    assert covered(two, 0.04, width=0.75) < 0.92  # and the band notices a narrower interval
    assert covered(two, 0.3) < 0.2  # and another truth


def test_the_intervals_of_three_methods_hold_together(three):
    assert all(p.level == pytest.approx(1 - 0.05 / 3) for p in three[0])
    assert 0.935 <= covered(three, 0.04) <= 0.985
    alone = stats.t.ppf(0.975, 4) / stats.t.ppf(1 - 0.025 / 3, 4)
    assert covered(three, 0.04, width=alone) < 0.925  # each at 95 % alone would not do


def test_equal_methods_are_rarely_called_apart():
    called = np.mean([any(p.ahead for p in found) for found in simulated(3, 0.0)])
    assert called <= 0.065


def test_a_large_difference_is_found():
    found = [p[0].ahead for p in simulated(2, 0.2)[:200]]
    assert found.count("1") > 170 and "0" not in found


@pytest.mark.parametrize("collapse", [0.0, 0.2])
def test_the_interval_of_an_interquartile_mean_holds_it(collapse):
    """Also where one seed in five fails, which a mean's interval does not survive."""
    rng = np.random.default_rng(1)
    draw = lambda n: rng.normal(0.7, 0.1, n) - 0.5 * (rng.random(n) < collapse)  # noqa: E731
    truth = float(middle(draw(400_000)))
    _, low, high = bands(draw((400, 5)))
    assert 0.91 <= np.mean((low <= truth) & (truth <= high)) <= 0.97


def test_the_usual_bootstrap_would_be_too_narrow(monkeypatch):
    rng = np.random.default_rng(1)
    monkeypatch.setattr(statistics, "_tail", lambda n: 0.025)
    monkeypatch.setattr(statistics, "RESAMPLES", 2000)
    _, low, high = bands(rng.normal(0.7, 0.1, (2000, 5)))
    assert np.mean((low <= 0.7) & (high >= 0.7)) < 0.925


def test_the_tails_of_the_bootstrap_are_those_of_students_t_for_so_few():
    """Φ(−√(5/4) · 2.776445): 2.776445 is the 97.5 % quantile of t with 4 degrees of freedom."""
    beyond = math.erfc(math.sqrt(5 / 4) * 2.776445 / math.sqrt(2)) / 2
    assert statistics._tail(5) == pytest.approx(beyond, rel=1e-4)
    assert statistics._tail(1000) == pytest.approx(0.025, rel=0.02)


def test_the_middle_cuts_a_quarter_at_each_end():
    assert middle([9, 1, 2, 3, 0]) == 2
    assert middle([1, 2, 3, 10]) == 4  # below five it is the mean
    assert middle([[0, 0, 1, 2, 3, 4, 50, 99]]) == [2.5]


def test_intervals_are_the_same_each_time_and_keep_their_bounds():
    values = [0.9, 0.8, 1.0, 0.95, 1.0]
    found = typical(values, (0.0, 1.0))
    assert found == typical(values, (0.0, 1.0))
    assert found.low >= 0.8 and found.high == 1.0 and found.count == 5
    few = typical([0.4, 0.9], (0.0, 1.0))
    assert (few.low, few.high) == (0.0, 1.0)


def test_a_mean_has_students_interval():
    found = mean([1.0, 2.0, 3.0])
    assert found.value == 2
    assert found.high - 2 == pytest.approx(4.302653 * 1 / math.sqrt(3), rel=1e-6)


def test_shared_seeds_are_compared_seed_by_seed():
    """What is hard for both is taken out: of two runs, each interval alone would hold 0."""
    a = {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.9}
    b = {k: x - 0.1 - 0.01 * k for k, x in a.items()}
    (pair,) = pairs({"a": a, "b": b})
    differences = [0.1, 0.11, 0.12, 0.13]
    half = stats.t.ppf(0.975, 3) * np.std(differences, ddof=1) / 2
    assert pair.paired and pair.ahead == "a"
    assert pair.difference.high == pytest.approx(0.115 + half)
    assert pair.chance.value == 1.0 and pair.chance.low == pytest.approx(4 / (4 + 1.959964**2))
    (apart,) = pairs({"a": a, "b": {k + 10: x for k, x in b.items()}})
    assert not apart.paired and apart.ahead == ""


def test_other_seeds_are_compared_by_welch():
    x, y = [1.0, 2.0, 3.0], [2.0, 4.0, 9.0, 5.0]
    (pair,) = pairs({"x": dict(enumerate(x)), "y": {k + 5: v for k, v in enumerate(y)}})
    v, w = 1.0 / 3, np.var(y, ddof=1) / 4
    freedom = (v + w) ** 2 / (v**2 / 2 + w**2 / 3)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(v + w)
    assert pair.difference.low == pytest.approx(-3 - half)
    assert pair.p == pytest.approx(stats.ttest_ind(x, y, equal_var=False).pvalue)


def test_without_spread_nothing_is_called():
    same = pairs({"a": {0: 0.5, 1: 0.6}, "b": {0: 0.5, 1: 0.6}})[0]
    shifted = pairs({"a": {0: 0.5, 1: 0.6}, "b": {0: 0.4, 1: 0.5}})[0]
    for pair in (same, shifted):
        assert (pair.ahead, pair.difference.low, pair.more) == ("", -math.inf, 0)


def test_less_can_be_better():
    a, b = {0: 1.0, 1: 1.1, 2: 1.0}, {0: 2.0, 1: 2.2, 2: 2.1}
    assert [p.ahead for p in pairs({"a": a, "b": b}, better=-1)] == ["a"]
    assert [p.ahead for p in pairs({"a": a, "b": b}, better=1)] == ["b"]
    assert pairs({"a": a, "b": b}, better=-1)[0].chance.value == 1.0


def test_differences_of_shares_stay_within_one():
    (pair,) = pairs({"a": {0: 0.9, 1: 0.2}, "b": {0: 0.1, 1: 0.3}}, widest=1.0)
    assert (pair.difference.low, pair.difference.high) == (-1.0, 1.0)


def test_the_chance_counts_pairs_of_runs_and_its_interval_is_wide():
    """Against the exact variance of the share of pairs, found by simulation: never narrower."""
    assert independent_chance([1, 2], [0, 1]).value == (1 + 0.5 + 1 + 1) / 4
    apart = independent_chance([5, 6, 7], [1, 2, 3])
    assert apart.value == 1.0 and apart.low < 0.5
    rng = np.random.default_rng(0)
    truth = stats.norm.cdf(0.8 / math.sqrt(2))
    found = [independent_chance(rng.normal(0.8, 1, 6), rng.normal(0, 1, 6)) for _ in range(600)]
    assert np.mean([m.low <= truth <= m.high for m in found]) >= 0.95


def test_so_many_seeds_show_the_difference_in_four_of_five():
    more = more_seeds(0.04, 0.05, 5, 0.95)
    rng = np.random.default_rng(0)
    power = {}
    for n in (5 + more, (5 + more) // 2):
        x = rng.normal(0.04, 0.05, (4000, n))
        power[n] = np.mean(stats.ttest_1samp(x, 0, axis=1).pvalue < 0.05)
    assert 0.78 <= power[5 + more] <= 0.85
    assert power[(5 + more) // 2] < 0.65
    assert more_seeds(0.0, 0.05, 5, 0.95) == more_seeds(1e-6, 0.05, 5, 0.95) == 0
    assert more_seeds(5.0, 0.05, 5, 0.95) == 1


def test_a_pair_is_ahead_only_where_its_interval_leaves_out_0(two):
    for (pair,) in two:
        clear = pair.difference.low > 0 or pair.difference.high < 0
        assert bool(pair.ahead) == clear
    touching = replace(two[0][0], difference=replace(two[0][0].difference, low=0.0, high=0.1))
    assert touching.ahead == ""
