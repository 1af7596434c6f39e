"""Reward to go against a number that was measured beside the rollout."""

from __future__ import annotations

from anypo.pieces.advantage.versus import Versus
from tests.identities.small import close, steps

BATCH = steps([2, 1], reward=[1, 2, 0], greedy=[0.5, 0.5, 4])


def test_the_difference():
    close(Versus()(BATCH), [2.5, 1.5, -4])


def test_is_clamped():
    close(Versus(low=-1.0, high=2.0)(BATCH), [2, 1.5, -1])
