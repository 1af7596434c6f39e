"""Bounds of ratios: the defaults, and the search of BAPO."""

from __future__ import annotations

import math

import torch

from anypo.pieces.surrogate.clip import BalancedClip, Clip
from tests.identities.small import close, steps


def found(ratio: list[float], advantage: list[float], **options) -> tuple[float, float, float]:
    given = (torch.tensor(x, dtype=torch.float64) for x in (ratio, advantage))
    return BalancedClip(**options).bounds(*given)


def test_both_bounds_are_a_fifth_away_by_default():
    logs = [math.log(1.5), math.log(0.5)]
    close(Clip()(steps([2], log_ratio=logs, advantage=[1, -1])), [1.2, -0.8])


def test_the_upper_bound_stops_at_the_step_that_reaches_the_balance():
    """q = min(3, high) / 1.5, and the lower bound, which cannot help, rises first."""
    assert found([3.0, 1.0], [1.0, -1.5], eps=0.0) == (0.8, 1.5, 1.0)


def test_the_lower_bound_rises_before_the_upper_one():
    assert found([3.0, 1.0], [1.0, -1.5], low_max=0.6, eps=0.0) == (0.6, 1.5, 1.0)


def test_a_balance_that_is_reached_moves_nothing():
    assert found([1.0, 1.0], [1.0, -1.0], eps=0.0) == (0.6, 1.2, 1.0)


def test_without_a_negative_contribution_the_balance_is_infinite():
    assert found([1.0, 1.0], [1.0, 0.0]) == (0.6, 1.2, math.inf)
    assert found([1.0, 1.0], [0.0, 0.0]) == (0.6, 1.2, math.inf)


def test_the_bounds_depend_on_the_whole_batch():
    assert BalancedClip().couples == "batch"


def test_small_contributions_count():
    assert found([1.0, 1.0], [0.1, -0.2], target=0.4, eps=0.0) == (0.6, 1.2, 0.5)
