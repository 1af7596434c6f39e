"""GAE and whitening: two λ, and what is standardised with what."""

from __future__ import annotations

import math

import pytest
import torch

from anypo.pieces.advantage.gae import GAE, Whiten
from tests.identities.small import close, steps

BATCH = steps([2], reward=[1, 2], value=[0.5, 1], value_next=[1, 0])


def test_nothing_is_discounted_by_default():
    close(GAE(lam=1.0)(BATCH), [2.5, 1])
    close(GAE(lam=0.0)(BATCH), [1.5, 1])


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_the_critics_target_has_a_lambda_of_its_own(lam):
    """δ = (1.5, 1), so A' = (1.5 + λ, 1)."""
    piece = GAE(lam=0.95, lam_value=lam)
    close(piece.targets(BATCH, piece(BATCH))["return"], [1.5 + lam + 0.5, 2])


def test_without_one_it_is_that_of_the_advantage():
    close(GAE(lam=0.5).targets(BATCH, GAE(lam=0.5)(BATCH))["return"], [2.5, 2])


def whitened(values: list[float], **options) -> torch.Tensor:
    return Whiten(**options)(steps([len(values)], advantage=values))


def test_what_is_added_to_the_deviation_or_under_its_root():
    root = math.sqrt(2)
    close(whitened([-1, 1], eps=0.5), [-1 / (root + 0.5), 1 / (root + 0.5)])
    width = math.sqrt(2.5)
    close(whitened([-1, 1], eps=0.5, under_root=True), [-1 / width, 1 / width])
    close(whitened([-1, 1], eps=0.0, ddof=0), [-1, 1])


def test_equal_members_give_0_without_any_eps():
    close(whitened([0.3] * 3, eps=0.0), [0, 0, 0])


def test_signs_are_standardised_apart_and_0_is_no_positive_one():
    got = whitened([-2, -1, 0, 0.5, 2.5], within=("batch", "sign"), eps=0.0, ddof=0)
    low = math.sqrt(2 / 3)
    close(got, [-1 / low, 0, 1 / low, -1, 1])
