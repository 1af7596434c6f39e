"""GRPO and its relatives: a group of answers to one prompt is its own baseline."""

from __future__ import annotations

import math

from anypo.core.method import method
from anypo.core.neutral import Groups, Mean, Reinforce
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.reward.overlong import Overlong
from anypo.pieces.sampling.refill import Refill
from anypo.pieces.surrogate.clip import BalancedClip, Clip


@method(paper="2402.03300", title="GRPO", aliases=("group_norm",))
def grpo(group: int = 8, clip: float = 0.2, beta: float = 0.04, eps: float = 1e-6) -> Recipe:
    """Group relative policy optimisation: PPO whose critic is the group's mean and deviation.

    `A_i = (r_i − μ_g)/(σ_g + eps)`, `L = (1/B) Σ_i (1/n_i) Σ_t [ −min(r·A, clip(r)·A) + β·k3 ]`.

    Parameters: `group` (G; paper 64, here 8 as in TRL), `clip` (ε = 0.2), `beta` (0.04, paper; 0
    loads no reference), `eps` (1e-6, verl; TRL 1e-4).
    Deviations: none in the loss. The paper leaves the divisor of σ open; it is G−1, as in verl and
    TRL. verl adds a dual clip of 3 that the paper does not have: `--recipe.surrogate.dual 3`.
    Reference: DeepSeekMath, 2402.03300.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", scale="std", eps=eps),
        ratio=Ratio("step"),
        surrogate=Clip(clip, clip),
        regularize=(KL("base", beta, form="k3"),) if beta else (),
        aggregate=Mean("step", "traj", "batch"),
    )


@method(paper="2503.20783", title="Dr. GRPO", aliases=("drgrpo",))
def dr_grpo(group: int = 8, clip: float = 0.2, length: int = 0) -> Recipe:
    """GRPO done right: neither the group's deviation nor the answer's length divides.

    `A_i = r_i − μ_g`, `L = −(1/(B·L_max)) Σ_i Σ_t min(r·A, clip(r)·A)`.

    Parameters: `group`, `clip`, `length` (L_max in tokens; 0 = the run's generation budget, as in
    the paper's code and TRL). Deviations: none; verl's form sums over rows without 1/B.
    Reference: 2503.20783.
    """
    return grpo(group, clip, beta=0).but(
        advantage=Baseline("traj", "group"),
        aggregate=Mean("step", "traj", "batch", length=length or "horizon"),
    )


@method(paper="2503.14476", title="DAPO", aliases=("dapo_clip_higher",))
def dapo(
    group: int = 16,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    overlong: float = 0.2,
    rounds: int = 10,
    dual_clip: float = math.inf,
) -> Recipe:
    """Decoupled clip and dynamic sampling: four switches on GRPO, and no KL.

    `L = −Σ_it min(r·A, clip(r, 1−ε_l, 1+ε_h)·A) / Σ_it 1`; groups of equal outcome are replaced;
    answers in the last part of the budget are punished softly.

    Parameters: `group` (16), `clip_low` 0.2, `clip_high` 0.28, `overlong` (share of the budget over
    which the penalty grows: 0.2 is 4096 of 20480; 0 = off), `rounds` (most requests, 10),
    `dual_clip` (∞, paper; the script has 10). Deviations: see `Refill` on exhausted rounds.
    Reference: 2503.14476.
    """
    return grpo(group, beta=0).but(
        reward=(Overlong(overlong),) if overlong else (),
        sampling=Groups(group) >> Refill(rounds),
        surrogate=Clip(clip_low, clip_high, dual_clip),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2507.18071", title="GSPO", aliases=("importance_sampling_level=sequence",))
def gspo(group: int = 8, clip_low: float = 3e-4, clip_high: float = 4e-4) -> Recipe:
    """Group sequence policy optimisation: one length-normalised ratio per answer.

    `s_i = exp((1/n_i) Σ_t log r_it)`, `L = −(1/B) Σ_i min(s·A, clip(s, 1−ε_l, 1+ε_h)·A)`.

    Parameters: `group`, `clip_low` 3e-4, `clip_high` 4e-4 (paper). Deviations: |log s| is capped at
    20; the code caps it at 10 from above. Reference: 2507.18071.
    """
    return grpo(group, beta=0).but(
        ratio=Ratio("traj", mean=True),
        surrogate=Clip(clip_low, clip_high),
    )


@method(paper="2506.13585", title="CISPO")
def cispo(group: int = 8, clip_low: float = 10.0, clip_high: float = 0.2) -> Recipe:
    """Clipped importance weights: the weight is clipped and detached, no token loses its gradient.

    `L = −Σ_it sg(clip(r, 1−ε_l, 1+ε_h))·A·logp / Σ_it 1`.

    Parameters: `group`, `clip_low` (10: no lower bound, as the paper has it), `clip_high` (0.2,
    verl's script; TRL's `epsilon_high` is the bound itself, here 1 + clip_high).
    Deviations: none. Reference: MiniMax-M1, 2506.13585.
    """
    return grpo(group, beta=0).but(
        surrogate=Reinforce(clip_low, clip_high),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2510.18927", title="BAPO")
def bapo(
    group: int = 8,
    low: float = 0.6,
    low_max: float = 0.8,
    high: float = 1.2,
    high_max: float = 2.0,
    target: float = 1.0,
    dual_clip: float = 3.0,
) -> Recipe:
    """Balanced policy optimisation: clip bounds widen until positive tokens carry their share.

    PPO with ratio bounds `[low, high]` found per update batch so that `Σ⁺ / Σ⁻ ≥ target`.

    Parameters: `group`, `low` → `low_max`, `high` → `high_max` (ratio bounds, 0.6 → 0.8 and
    1.2 → 2.0, in increments of 0.05), `target` (1.0), `dual_clip` (3): the published code's.
    Deviations: see `BalancedClip`. Reference: 2510.18927.
    """
    clip = BalancedClip(low, low_max, high, high_max, target=target, dual=dual_clip)
    return grpo(group, beta=0).but(surrogate=clip, aggregate=Mean("step", "batch"))
