"""Pieces under the names that other libraries give them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from anypo.core.neutral import Mean
from anypo.core.piece import Aggregate, Regularizer
from anypo.core.schedule import Cosine, Linear, Schedule
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.clip import Clip

MEANS: dict[str, tuple[str, ...]] = {
    "token-mean": ("step", "batch"),
    "token-sum": ("batch",),
    "seq-mean-token-sum": ("traj", "batch"),
    "seq-mean-token-mean": ("step", "traj", "batch"),
    "seq-mean-token-sum-norm": ("step", "traj", "batch"),
}
"""verl's names of means → levels."""

OFF = 1e4
"""A dual clip that no ratio reaches: people write a large number for none."""

FORMS = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}
"""verl's names of estimators of the KL → those here."""


def mean(name: str, length: int = 0) -> Aggregate:
    """The mean of one of verl's names; of an unknown one token-mean."""
    levels = MEANS.get(name, MEANS["token-mean"])
    fixed = name == "seq-mean-token-sum-norm"
    return Mean(*levels, length=(length or "horizon") if fixed else "actual")


def clip(low: float, high: float, dual: float | None = None) -> Clip:
    """PPO's clip; below a ratio of 0 nothing is left to clip, nor above `OFF` for a dual clip."""
    bound = float(dual or math.inf)
    return Clip(min(float(low), 1.0), float(high), bound if bound < OFF else math.inf)


def divergence(beta: float, form: str = "k3", weighted: bool = False) -> tuple[Regularizer, ...]:
    """The KL in the loss; without a coefficient none, so that no reference is loaded."""
    plain = FORMS.get(form, form)
    return (KL("base", float(beta), plain, weighted=weighted),) if beta else ()


def schedule(name: str, steps: int, end: float = 0.0) -> dict[str, Schedule]:
    """A learning rate that falls; `recipe.schedules`."""
    kinds = {"linear": Linear, "cosine": Cosine}
    if name not in kinds or steps < 1:
        return {}
    return {"update.lr_scale": kinds[name](1.0, end, steps)}


def whole(values: Mapping[str, Any], key: str, default: int = 1) -> int:
    """A key as a whole number, at least 1."""
    value = values.get(key)
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return max(1, int(value)) if plain else default  # pyright: ignore[reportArgumentType]
