"""Data of another policy than the one at the start of the update: weights, centres, brakes."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.method import method
from anypo.core.neutral import Adam, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.aggregate.behaviour import Behaviour
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.variance import RatioVariance
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.surrogate.window import CentredClip
from anypo.pieces.update.average import Averaged
from anypo.recipes.group_relative import grpo
from anypo.recipes.policy_gradient import ppo


@method(paper="2111.00072", title="GePPO", domain="any")
def geppo(
    clip: float = 0.2,
    gamma: float = 0.99,
    lam: float = 0.95,
    epochs: int = 10,
    minibatches: int = 32,
) -> Recipe:
    """Generalised PPO with sample reuse: the clip stands where the old policy is, not at 1.

    `r = π/μ`, `c = sg(π_old/μ)`, `L = −mean_n min(r·A, clip(r, c−e, c+e)·A)`, `e = ε·2/(M+1)`
    on data of M policies; A is centred on its mean under the weights c and divided by the deviation
    of c·A.

    Parameters: `clip` (ε, 0.2), `gamma` 0.99, `lam` 0.95, `epochs` 10, `minibatches` 32 (the
    authors').
    Deviations: M is 1, fresh data, for which this is PPO up to the sampler's rounding. A larger
    one, `--recipe.surrogate.policies 3`, is refused until a sampling piece keeps the batches of
    earlier policies, which then count alike.
    Optimal weights of the policies, the authors' lowering of the learning rate, the optional
    shrinking of e by the data's age, and V-trace-like advantages are left out.
    Reference: 2111.00072; formula read in the authors' code, no reference numbers.
    """
    return ppo(gamma=gamma, lam=lam).but(
        advantage=GAE(gamma, lam) >> Whiten(weighted=True),
        ratio=Ratio("step", to="logp_mu"),
        surrogate=CentredClip(clip, clip),
        update=Adam(epochs, minibatches, max_grad_norm=0.5),
    )


@method(paper="2110.00641", title="Decoupled PPO", aliases=("ppo_decoupled",))
def decoupled_ppo(
    group: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    weight_cap: float = 5.0,
    cap_mode: Literal["mask", "clamp"] = "mask",
) -> Recipe:
    """Decoupled PPO: one policy sampled, another is the centre of the trust region.

    `L = −Σ_it w·min(r·A, clip(r, 1−ε_l, 1+ε_h)·A) / Σ_it 1`, `r = π/π_old`, `w = π_old/μ`.

    Parameters: `group` (8), `clip_low`, `clip_high` (0.2), `weight_cap` (largest w; 5, AReaL's
    documents, unverified; ∞ = off, as in the paper), `cap_mode` (above it: `mask` drops the token,
    which still counts in the denominator; `clamp` lowers w).
    Deviations: a cap is on. The advantage is a group's, as AReaL uses it, where the paper has a
    critic, and the centre is the policy before the update; for its moving average see `ppo_ewma`.
    Reference: 2110.00641; for language models, AReaL, 2505.24298.
    """
    return grpo(group, beta=0).but(
        surrogate=Clip(clip_low, clip_high),
        aggregate=Mean("step", "batch") * Behaviour(weight_cap, cap_mode),
    )


@method(paper="2110.00641", title="PPO-EWMA", domain="any")
def ppo_ewma(
    clip: float = 0.2,
    imp_samp_max: float = 100.0,
    kl_penalty: float = 0.0,
    decay: float = 0.889,
    gamma: float = 1.0,
    lam: float = 0.95,
    epochs: int = 1,
    minibatches: int = 8,
) -> Recipe:
    """PPO-EWMA: the trust region is around a moving average of the weights.

    `L = −mean_n min(π/μ·A, clip(π/prox, 1±ε)·prox/μ·A) + k·½·mean_n (log π/prox)² + value loss`,
    prox the average of the weights after every optimizer step.

    Parameters: `clip` (ε, 0.2), `imp_samp_max` (largest π/μ, 100, the code's; ∞ = off),
    `kl_penalty` (k, 0), `decay` (of the average, 0.889; the paper's, unverified), `gamma`, `lam`
    (GAE), `epochs` 1, `minibatches` 8 (the code's).
    Deviations: the critic is `ppo`'s. The entropy bonus of the code is left out.
    Reference: Batch size-invariance for policy optimization, 2110.00641.
    """
    base = ppo(gamma=gamma, lam=lam)
    near = KL("ewma", kl_penalty, form="k2")
    return base.but(
        ratio=Ratio("step", to="logp_mu"),
        surrogate=CentredClip(clip, clip, "ref.ewma", window="factor", cap=imp_samp_max),
        regularize=(near, *base.regularize) if kl_penalty else base.regularize,
        update=Averaged(Adam(epochs, minibatches, max_grad_norm=0.5), "ewma", decay),
    )


@method(paper="2601.03320", title="R²VPO")
def r2vpo(group: int = 8, lam: float = 0.04, delta: float = 0.1, eta: float = 0.1) -> Recipe:
    """Ratio-variance regularised policy optimisation: a constraint on E[(r−1)²] instead of a clip.

    `L = −(1/N) Σ_n r·A + λ·(1/N) Σ_n (r−1)²`; after every iteration
    `λ ← max(0, λ + η·(mean_n (r−1)² − δ))` under the updated policy.

    Parameters: `group` (8), `lam` (λ at the start; 0.04, a third party's), `delta` (δ, 0.1) and
    `eta` (η, 0.1; 0 = λ is fixed, which saves two passes): ours, the paper's are not known here.
    Deviations: the old policy is that at the start of the update; replayed data and the weights of
    such data are left out. The form is from the abstracts and one third-party code: the paper's
    dual step is unverified. At r = 1 the penalty has no slope: it matters with more than one update
    per batch, `--recipe.update.epochs 2`. Reference: 2601.03320, 2605.26784.
    """
    return grpo(group, beta=0).but(
        surrogate=Clip(1.0, math.inf),
        regularize=(RatioVariance(lam, delta, eta),),
        aggregate=Mean("step", "batch"),
    )
