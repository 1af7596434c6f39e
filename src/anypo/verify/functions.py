"""What vector files name that is no method: a piece alone, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anypo.core.neutral import Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.sampling.probe import soft_mean

Function = Callable[..., dict[str, Any]]


def _gae(**options: float) -> Recipe:
    return Recipe(advantage=GAE(**options) >> Whiten(under_root=True))


def _penalty(**options: Any) -> Recipe:
    options = {"form": options.pop("estimator", "k3"), "beta": 1.0, **options}
    return Recipe(regularize=(KL(**options),), aggregate=Mean("step", "batch"))


ALONE: dict[str, Callable[..., Recipe]] = {
    "gae": _gae,
    **dict.fromkeys(("kl-k1", "kl-k2", "kl-k3", "kl-abs", "kl-k3-straight-through"), _penalty),
}
"""Pieces that a file tests alone: method → the recipe of nothing else."""


def _soft_value(ref_rewards: list[float], beta1: float) -> dict[str, Any]:
    return {"v_star": soft_mean(ref_rewards, beta1)}


FUNCTIONS: dict[str, Function] = {
    "a-star-po-vstar": _soft_value,
}
"""Functions that a file tests: method → its results by the file's names."""
