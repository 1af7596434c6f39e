"""Regressions and preferences: groups of any size, and what they couple."""

from __future__ import annotations

import pytest
import torch

from anypo.pieces.surrogate.regression import (
    GroupRegression,
    PairClip,
    Preference,
    Regression,
)
from tests.identities.small import close, steps


def test_a_group_regression_is_the_unbiased_variance_of_the_residual():
    """x = 2·h − 3·A = (−1, 2, 5): mean 2, k/(k−1) = 3/2."""
    batch = steps([1, 2, 1], log_ratio=[1, 1, 1, 1], advantage=[1, 0, 0, -1])
    got = GroupRegression(beta=2.0, eta=3.0, scale=0.5)(batch)
    close(got, [-0.5 * 1.5 * 9, 0, 0, -0.5 * 1.5 * 9])
    x = torch.tensor([-1.0, 2.0, 5.0], dtype=torch.float64)
    per_traj = got[torch.tensor([0, 1, 3])]
    torch.testing.assert_close(-per_traj.mean(), 0.5 * x.var(unbiased=True))


def test_the_only_one_of_a_group_has_nothing_to_regress_on():
    close(GroupRegression()(steps([1], log_ratio=[3], advantage=[1])), [0])


def test_a_pair_is_half_the_squared_difference():
    """REBEL: scale 2 gives (x_1 − x_2)² for each of the two, so its mean as well."""
    batch = steps([1, 1], log_ratio=[0.5, -0.5], advantage=[1, -2])
    close(GroupRegression(scale=2.0)(batch), [-4, -4])


def test_a_regression_is_minus_the_squared_residual():
    batch = steps([2], log_ratio=[1, 2], advantage=[3, -1])
    close(Regression(beta=2.0, eta=0.5, scale=3.0)(batch), [-3 * 0.25, -3 * 20.25])


@pytest.mark.parametrize("piece", [GroupRegression(), Preference()], ids=["regression", "pairs"])
def test_groups_are_coupled(piece):
    assert piece.couples == "group"


def test_a_pair_of_equal_lots_has_no_first_and_no_pull():
    batch = steps([1, 1], log_ratio=[0.3, -0.3], advantage=[1, -1], lot=[0.5, 0.5])
    close(PairClip()(batch), [0, 0])
