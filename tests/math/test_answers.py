"""pass@k and majority votes against counting every subset, and against simulation."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest

from anypo.math.answers import majority_at, pass_at


def all_subsets(k: int, answers: list[tuple[str, float]]) -> tuple[float, float]:
    """pass@k and the majority's credit, by looking at every subset."""
    passed, voted = [], []
    for chosen in combinations(answers, k):
        passed.append(any(credit == 1 for _, credit in chosen))
        counts = Counter(name for name, _ in chosen)
        winners = [n for n, c in counts.items() if c == max(counts.values())]
        credits = dict(chosen)
        voted.append(sum(credits[n] for n in winners) / len(winners))
    return sum(passed) / len(passed), sum(voted) / len(voted)


ANSWERS = {
    "one right": [("a", 1.0), ("b", 0.0), ("c", 0.0), ("d", 0.0), ("e", 0.0)],
    "a tie": [("a", 1.0)] * 3 + [("b", 0.0)] * 3 + [("c", 0.0)],
    "right is second": [("b", 0.0)] * 4 + [("a", 1.0)] * 3 + [("c", 0.0), ("d", 1.0)],
    "partial credit": [("a", 0.5)] * 2 + [("b", 0.25)] * 2 + [("c", 0.0)] * 2,
    "all right": [("a", 1.0)] * 6,
}


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
def test_both_are_the_mean_over_all_subsets(answers):
    counts = Counter(answers)
    votes = [(n, credit) for (_, credit), n in counts.items()]
    right = sum(credit == 1 for _, credit in answers)
    for k in range(1, len(answers) + 1):
        passed, voted = all_subsets(k, answers)
        assert pass_at(k, right, len(answers)) == pytest.approx(passed, abs=1e-12)
        assert majority_at(k, votes) == pytest.approx(voted, abs=1e-12)


def test_a_tie_is_broken_by_a_fair_die_and_not_by_order():
    assert majority_at(4, [(2, 1.0), (2, 0.0)]) == majority_at(4, [(2, 0.0), (2, 1.0)]) == 0.5
    assert majority_at(2, [(2, 1.0), (2, 0.0)]) == pytest.approx(0.5)


def test_the_estimate_is_that_of_the_codex_paper():
    # n = 10, c = 3, k = 5: 1 − C(7, 5)/C(10, 5) = 1 − 21/252
    assert pass_at(5, 3, 10) == pytest.approx(1 - 21 / 252)
    assert pass_at(1, 3, 10) == pytest.approx(0.3)
    assert pass_at(8, 3, 10) == 1.0


def test_many_answers_stay_exact():
    votes = [(40, 1.0), (20, 0.0), *[(1, 0.0)] * 4]
    assert majority_at(64, votes) == 1.0
    assert majority_at(1, votes) == pytest.approx(40 / 64)
    assert 0.9 < majority_at(16, votes) < 1
    assert math.isfinite(pass_at(256, 1, 1000))


@pytest.mark.parametrize("k", [0, 4])
def test_more_than_there_are_is_refused(k):
    with pytest.raises(ValueError, match="wants at least"):
        pass_at(k, 1, 3)
    with pytest.raises(ValueError, match="wants at least"):
        majority_at(k, [(3, 1.0)])
