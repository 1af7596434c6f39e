"""Penalties in closed form, and those whose coefficient is 0."""

from __future__ import annotations

import pytest

from anypo.core.neutral import Mean
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.regularizer.kl import KL
from tests.identities.small import close, steps


@pytest.mark.parametrize("piece", [KL(beta=0.0), Entropy(coef=0.0)], ids=["kl", "entropy"])
def test_a_penalty_of_0_reads_no_model_column(piece):
    assert piece.needs == frozenset()
    close(piece(steps([2], advantage=[1, 2])), [0, 0])


def test_gaussians_with_one_scale():
    """β · ‖m − m'‖² / (2·σ²)."""
    columns = {"mean": [[1, 2], [0, 0]], "ref.base.mean": [[0, 0], [3, 4]], "std": [0.5, 2]}
    close(KL(beta=0.5, form="gaussian")(steps([2], **columns)), [0.5 * 10, 0.5 * 25 / 8])


def test_inputs_of_a_network_can_be_averaged():
    close(Mean("seq", "batch")(steps([2, 1])), [0.5, 0.5, 0.5])
