"""Policy gradients of a reward less a divergence: from the old policy, or from a target."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.errors import UsageError
from anypo.core.method import method
from anypo.core.neutral import Groups, Mean, Reinforce
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.pseudo_reward import PseudoReward
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.derived import Tangent
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.reward.kl import KLReward
from anypo.pieces.surrogate.clip import Clip
from anypo.recipes.policy_gradient import rloo

Form = Literal["fkl", "rkl", "ufkl", "urkl"]


@method(paper="2505.17508", title="RPG", aliases=("rpg_differentiable", "rpg_differentiable_urkl"))
def rpg(form: Form = "urkl", beta: float = 1e-4, group: int = 8) -> Recipe:
    """Regularised policy gradient: a loss whose gradient is that of `E[R] − β·D`, off policy too.

    `L = mean_n [ −w·A + β·k ]`, `w = π/π_old`, with k: fkl `−log w`, rkl `w·log w`, ufkl
    `w − log w − 1`, urkl `w·log w − w`; `A_i = R_i − μ_g`.

    Parameters: `form` (forward or reverse KL to the old policy, u: of unnormalised measures),
    `beta` (1e-4), `group` (8).
    Deviations: the paper also clips the whole term as PPO does; no form of that is here. The
    repository clamps log-ratios at ±10 (here |log w| at 20 in the surrogate). Its recipes, as
    published, run PPO without a KL. Reference: 2505.17508.
    """
    estimators = {"fkl": "k1", "rkl": "k1", "ufkl": "k3", "urkl": "k1-"}
    if form not in estimators:
        raise UsageError(f"form={form!r}: it must be one of {', '.join(estimators)}")
    forward = form in ("fkl", "ufkl")
    penalty = KL("old", beta, estimators[form], reverse=forward, weighted=not forward)
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group"),
        ratio=Ratio("step"),
        surrogate=Clip(1.0, math.inf),
        regularize=(penalty,) if beta else (),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2505.17508", title="RPG (REINFORCE style)", aliases=("rpg_reinforce_fkl",))
def rpg_reinforce(
    form: Form = "urkl",
    beta: float = 1e-4,
    clip_low: float = 1.0,
    clip_high: float = math.inf,
    group: int = 8,
) -> Recipe:
    """RPG as a weighted log-likelihood: the weights are those of RPG's gradient, detached.

    `L = −mean_n sg(g)·logp`, with g: fkl `w·A + β`, rkl `w·(A − β·(log w + 1))`, ufkl
    `w·A − β·(w − 1)`, urkl `w·(A − β·log w)`, and w clipped to `[1 − ε_l, 1 + ε_h]` throughout.

    Parameters: `form`, `beta` (1e-4), `clip_low`, `clip_high` (1 and ∞: not clipped, the same
    gradient as `rpg`; the repository's hard clip has 0.2 and 0.28), `group` (8).
    Deviations: none from the repository's loss, which its published recipes do not call.
    Reference: 2505.17508.
    """
    recipe = rpg(form, beta, group)
    return recipe.but(
        surrogate=Reinforce(clip_low, clip_high),
        regularize=tuple(Tangent(p, clip_low, clip_high) for p in recipe.regularize),
    )


@method(paper="2302.08215", title="f-DPG")
def f_dpg(
    f: Literal["kl", "reverse_kl", "js", "tv", "chi_square", "reverse_chi_square"] = "js",
    beta: float = 0.1,
    z: float = 0.0,
    baseline: float = 0.0,
) -> Recipe:
    """Distributional policy gradient: the policy approaches a target in any f-divergence.

    `L = −mean_i sg(π/q)·(−f'(π/p) − b)·Σ_t logp`, `p ∝ ref·exp(R/β)`, q the sampler.

    Parameters: `f` (js, the code's default), `beta` (0.1: with `reverse_kl` this is RL with that
    KL in the reward), `z` (the target's mass; 0: estimated by importance sampling, a running mean),
    `baseline` (b at the start; then a running mean over about 1024 answers).
    Deviations: Z is one number for all prompts, exact for one prompt only (the paper's tasks). The
    pseudo-reward is taken at the start of an update, so with several optimizer steps per batch it
    is that of the policy before the first. Reference: 2302.08215.
    """
    return Recipe(
        advantage=PseudoReward(f, beta, z, baseline),
        ratio=Ratio("traj", to="logp_mu"),
        surrogate=Reinforce(),
    )


@method(paper="2505.17508", title="KL estimators in reward or loss")
def kl_estimators(
    estimator: Literal["k1", "k2", "k3", "abs", "k1+", "k3+"] = "k1",
    place: Literal["reward", "loss"] = "reward",
    weighted: bool = False,
    beta: float = 0.03,
    group: int = 4,
) -> Recipe:
    """RLOO with a KL to the reference by any estimator, in the reward or in the loss.

    With `d = logp − ref`: k1 `d`, k2 `d²/2`, k3 `exp(−d) − 1 + d`, abs `|d|`; a `+` has the value
    of its estimator and the gradient of k2. In the reward: `r_it −= β·k(d_it)`, no gradient. In the
    loss: `+ β·k(d_it)` per token, or, weighted, `+ β·(π/π_old)·k(d_it)`.

    Parameters: `estimator`, `place`, `weighted` (the importance weight, with its gradient; in the
    loss alone), `beta` (0.03, RLOO's), `group` (4).
    Which is right: k1 in the reward has exactly the gradient of `E[R] − β·KL(π ‖ ref)`. In the
    loss, on policy and per token, k2 and the `+` forms have that of the KL, k3 that of KL(ref ‖ π),
    and k1 has none on average; weighted k1 and k3 have that of the KL off policy too.
    Deviations: verl clamps d at ±20 and k3 at ±10, which kills the gradient beyond; here nothing
    is clamped. Reference: Schulman, "Approximating KL divergence", 2020; 2505.17508.
    """
    if place == "reward":
        if weighted or "+" in estimator:
            raise UsageError("in the reward an estimate must be plain: no weight, no `+`")
        return rloo(group, beta=0).but(reward=(KLReward(beta, estimator),))
    if place != "loss":
        raise UsageError(f"place={place!r} must be reward or loss")
    penalty = KL("base", beta, estimator, weighted=weighted)
    return rloo(group, beta=0).but(regularize=(penalty,))
