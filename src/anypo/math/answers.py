"""What several answers to one question are worth: pass@k and majority votes, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence


def pass_at(k: int, right: int, drawn: int) -> float:
    """Chance that `k` of `drawn` answers, of which `right` are right, hold a right one.

    `1 − C(n − c, k) / C(n, k)`: the unbiased estimate of pass@k. Reference: 2107.03374.
    """
    if not 1 <= k <= drawn:
        raise ValueError(f"pass@{k} wants at least {k} answers, and there are {drawn}")
    return 1 - math.comb(drawn - right, k) / math.comb(drawn, k)


def majority_at(k: int, votes: Sequence[tuple[int, float]]) -> float:
    """Expected credit of the most frequent of `k` answers, drawn without replacement.

    `votes` has, for each distinct answer, how often it was drawn and its credit (1 if right). A tie
    is broken by a fair die, in expectation. Nothing is drawn: the sum over all subsets is exact.

    For each number of votes j that may win: over the answers one by one, `ways[v, t]` counts the
    choices that use v votes so far and have t answers with exactly j, none with more;
    `credit[v, t]` adds up the credits of those t. The expectation is `Σ credit[k, t] / t`.
    Reference: self-consistency, 2203.11171, with ties in expectation.
    """
    drawn = sum(count for count, _ in votes)
    if not 1 <= k <= drawn:
        raise ValueError(f"a majority of {k} wants at least {k} answers, and there are {drawn}")
    if k == drawn:
        most = max(count for count, _ in votes)
        best = [credit for count, credit in votes if count == most]
        return sum(best) / len(best)
    total = sum(_winning(k, j, votes) for j in range(1, k + 1))
    return total / math.comb(drawn, k)


def _winning(k: int, j: int, votes: Sequence[tuple[int, float]]) -> float:
    """Sum over the choices of `k` answers whose winners have `j` votes of the winners' mean."""
    ways: dict[tuple[int, int], tuple[int, float]] = {(0, 0): (1, 0.0)}
    for count, credit in votes:
        after: dict[tuple[int, int], tuple[int, float]] = {}
        for (used, tied), (number, sum_) in ways.items():
            for own in range(min(count, j, k - used) + 1):
                wins = own == j
                many = math.comb(count, own)
                place = used + own, tied + wins
                a, b = after.get(place, (0, 0.0))
                gained = many * (sum_ + (credit * number if wins else 0.0))
                after[place] = a + many * number, b + gained
        ways = after
    return sum(sum_ / tied for (used, tied), (_, sum_) in ways.items() if used == k and tied)
