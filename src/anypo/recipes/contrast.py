"""Rewards as labels: the scores of right answers are pushed above those of wrong ones."""

from __future__ import annotations

import math
from typing import Any, Literal

from anypo.core.method import method
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.derived import Hinge
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.contrast import Contrast


@method(paper="2505.12366", title="DisCO")
def disco(
    group: int = 8,
    score: Literal["ratio", "logp"] = "ratio",
    variant: Literal["basic", "dro"] = "dro",
    tau: float = 1.0,
    delta: float = 1e-4,
    penalty: float = 1e3,
) -> Recipe:
    """Discriminative constrained optimisation: scores instead of advantages, a KL budget, no clip.

    `J = mean_q [ mean_pos s − τ·log mean_neg exp(s/τ) ]` (basic: `− mean_neg s`), s the mean over
    an answer's tokens of r or of logp; `L = −J + sg(b·max(K − δ, 0))·K` with K the mean of
    `r − 1 − log r` over all tokens.

    Parameters: `group` (8), `score` (`ratio` or `logp`), `variant` (`dro`, or `basic`), `tau` (1;
    10 with `logp`), `delta` (δ = 1e-4), `penalty` (b = 1000): the code's.
    Deviations: an answer is right when its reward is above its group's mean, which for rewards 0
    and 1 is the paper's label; the code leaves fractional rewards out. The value of the code's DRO
    loss means nothing (its gradient is this one). Reference: 2505.12366.
    """
    forms: dict[str, Any] = {"basic": "mean", "dro": "soft"}
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group"),
        ratio=Ratio("step"),
        surrogate=Contrast(score, forms.get(variant, variant), tau),
        regularize=(Hinge(KL("old", 1.0, "k3", reverse=True), delta, penalty),),
        aggregate=Mean("step", "traj", "group", "batch"),
    )


@method(paper="2602.05630", title="REAL")
def real(group: int = 8, tau: float = 0.5, beta: float = 0.0) -> Recipe:
    """Rewards as labels: a group is classified by length-normalised log-ratios, with an anchor 0.

    `L = mean_g [ log(1 + Σ_pos exp(−s_i/τ)) + log(1 + Σ_neg exp(s_j/τ)) ]`,
    `s_i = (1/n_i)·Σ_t (logp − logp_old)`; an answer is positive when its reward is above μ_g.

    Parameters: `group` (8), `tau` (0.5), `beta` (k3 to the reference, 0; the example run 0.001).
    Deviations: the KL is averaged like the loss (per answer, per group), where ms-swift takes the
    mean over tokens. A group without both classes adds 0 and counts in the mean, as there.
    Reference: 2602.05630.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group"),
        ratio=Ratio("step", cap=math.inf),
        surrogate=Contrast("log_ratio", "logistic", tau),
        regularize=(KL("base", beta, form="k3"),) if beta else (),
        aggregate=Mean("step", "traj", "group", "batch"),
    )
