"""Ratios and their transformations, with their gradients."""

from __future__ import annotations

import math

import pytest
import torch

from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.ratio.transform import Pool, Standardise
from tests.identities.small import close, steps


def test_a_ratio_is_one_of_steps_unless_told_otherwise():
    batch = steps([2], logp=[-1, -2], logp_old=[-1.5, -1])
    close(Ratio()(batch), [0.5, -1])
    close(Ratio("traj")(batch), [-0.5, -0.5])
    close(Ratio("traj", mean=True)(batch), [-0.25, -0.25])


@pytest.mark.parametrize(
    ("level", "couples"),
    [("step", "step"), ("segment", "traj"), ("turn", "turn"), ("traj", "traj")],
)
def test_a_ratio_couples_its_unit_and_a_segment_its_trajectory(level, couples):
    assert Ratio(level).couples == couples


def test_pooling_is_a_mean_over_the_trajectory():
    batch = steps([2, 1], log_ratio=[1, 2, 7])
    close(Pool()(batch), [1.5, 1.5, 7])
    assert Pool().couples == "traj"


def pair(*ratios: float, **options) -> torch.Tensor:
    return Standardise(**options)(steps([1] * len(ratios), log_ratio=list(ratios)))


def test_standardised_over_trajectories_within_a_group():
    """Long trajectories count once, and groups stand apart."""
    batch = steps([3, 1, 1, 1, 1], [0, 0, 0, 1, 1], log_ratio=[-1, -1, -1, 0, 1, 5, 5])
    unit = 1 / (1 + 1e-4)
    close(Standardise()(batch), [-unit, -unit, -unit, 0, unit, 0, 0])


def test_the_deviation_divides_by_one_less_or_by_all():
    close(pair(0, 0, 3, eps=1.0), [-1 / (math.sqrt(3) + 1)] * 2 + [2 / (math.sqrt(3) + 1)])
    close(pair(0, 0, 3, eps=1.0, ddof=0), [-1 / (math.sqrt(2) + 1)] * 2 + [2 / (math.sqrt(2) + 1)])
    close(pair(0, 2, eps=1.0), [-1 / (math.sqrt(2) + 1), 1 / (math.sqrt(2) + 1)])
    close(pair(4), [0])


def test_equal_ratios_have_the_gradient_of_their_difference_over_eps():
    leaf = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    out = Standardise(eps=0.5)(steps([1, 1]).with_({"log_ratio": leaf}))
    (grad,) = torch.autograd.grad(out[0], leaf)
    close(grad, [1, -1])
