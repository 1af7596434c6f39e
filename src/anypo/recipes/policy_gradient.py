"""Policy gradients: REINFORCE and what replaces its baseline, PPO, and PPO on demonstrations."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.errors import UsageError
from anypo.core.method import method
from anypo.core.neutral import Adam, Groups, Mean, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.advantage.versus import Recorded, Versus
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.value import ValueLoss
from anypo.pieces.reward.kl import KLReward
from anypo.pieces.sampling.probe import Probe
from anypo.pieces.sampling.steer import Steer
from anypo.pieces.surrogate.clip import Clip
from anypo.recipes.group_relative import grpo


@method(paper="10.1007/BF00992696", title="REINFORCE", domain="any")
def reinforce(group: int = 1) -> Recipe:
    """REINFORCE: reward to go times the gradient of the log-probability.

    `L = −(1/B) Σ_i Σ_t R_it · logp_it`, with `R_it` the reward to go.

    Parameters: `group` (trajectories per prompt, default 1).
    Deviations: none; the baseline of the paper is left out, as in the textbook form.
    Reference: Williams 1992.
    """
    return Recipe(sampling=Groups(group))


@method(paper="2402.14740", title="RLOO (REINFORCE leave-one-out)")
def rloo(group: int = 4, beta: float = 0.03) -> Recipe:
    """REINFORCE leave-one-out: the baseline is the mean reward of the other G−1 trajectories.

    `A_i = r_i − (Σ_{j≠i} r_j)/(G−1)`, `L = −(1/B) Σ_i A_i Σ_t logp_it`, where r is the outcome less
    `β·Σ_t (logp_old − ref)_it`.

    Parameters: `group` (G, paper 2 or 4), `beta` (KL coefficient, paper 0.03 to 0.1 by task; 0
    loads no reference).
    Deviations: none. Some trainers take the KL out of the baseline, or into the loss: a penalty per
    token there misses that a token leads to other states. Reference: Back to Basics, 2402.14740.
    """
    return Recipe(
        reward=(KLReward(beta),) if beta else (),
        sampling=Groups(group),
        advantage=Baseline("traj", "group", leave_one_out=True),
    )


@method(paper="1707.06347", title="PPO", domain="any", aliases=("ppo_clip", "ppo_value_clip"))
def ppo(
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = math.inf,
    value_coef: float = 0.5,
    value_clip: float = 0.2,
    entropy_coef: float = 0.0,
    gamma: float = 1.0,
    lam: float = 0.95,
    epochs: int = 4,
    minibatches: int = 4,
) -> Recipe:
    """Proximal policy optimisation with a critic in the same objective.

    `L = mean_n [ −min(r·A, clip(r, 1−ε_l, 1+ε_h)·A) + c_v·½·max((V−R)², (V_c−R)²) − c_e·H ]` with
    GAE advantages, whitened over the collected batch.

    Parameters: `clip_low`, `clip_high` (0.2, paper), `dual_clip` (∞ = off; verl 3), `value_coef`
    (0.5, CleanRL), `value_clip` (0.2, CleanRL; ∞ = off), `entropy_coef` (0), `gamma` (1 for
    language, 0.99 for control), `lam` (0.95), `epochs`, `minibatches` (4 and 4).
    Deviations: advantages are standardised over the whole collected batch (verl, TRL), where
    CleanRL does so per minibatch; the paper does neither.
    Reference: 1707.06347; dual clip 1912.09729.
    """
    return Recipe(
        advantage=GAE(gamma, lam) >> Whiten(),
        ratio=Ratio("step"),
        surrogate=Clip(clip_low, clip_high, dual_clip),
        regularize=(ValueLoss(value_coef, value_clip), Entropy(entropy_coef))
        if entropy_coef
        else (ValueLoss(value_coef, value_clip),),
        aggregate=Mean("step", "batch"),
        update=Adam(epochs, minibatches, max_grad_norm=0.5),
    )


@method(
    paper="2501.03262",
    title="REINFORCE++",
    aliases=("reinforce++", "reinforce_plus_plus"),
)
def reinforce_pp(
    variant: Literal["plain", "baseline"] = "plain",
    group: int = 4,
    gamma: float = 1.0,
    beta: float = 0.01,
    clip: float = 0.2,
) -> Recipe:
    """REINFORCE++: rewards to go, less a token-wise KL, are standardised over the whole batch.

    `R_it = Σ_{s≥t} γ^{s−t} (r_is − β·(logp_old − ref)_is)`, `A = (R − mean R)/sqrt(var R + 1e-8)`
    over all steps of the batch; `L = −Σ_it min(r·A, clip(r, 1±ε)·A) / Σ_it 1`. The baseline variant
    standardises `r_i − μ_g` instead, and its KL is the k2 estimator in the loss.

    Parameters: `variant` (`plain`, or `baseline`: the group's mean goes first), `group` (answers
    per prompt: 4; the plain form needs no group, and 1 is the paper's; the baseline needs 2),
    `gamma` (1; of the plain form), `beta` (0.01; the paper's range ends at 0.001), `clip` (0.2).
    Deviations: the variance is the sample's, as in verl; OpenRLHF divides by the number of steps
    and bounds the variance at 1e-8 instead of adding that. Tool output is no step, so the return
    reaches across it, which verl's does not. Reference: 2501.03262.
    """
    if variant not in ("plain", "baseline"):
        raise UsageError(f"variant={variant!r}: it must be plain or baseline")
    plain = variant == "plain"
    return Recipe(
        reward=(KLReward(beta),) if plain and beta else (),
        sampling=Groups(group),
        advantage=(Return(gamma) if plain else Baseline()) >> Whiten(under_root=True),
        ratio=Ratio("step"),
        surrogate=Clip(clip, clip),
        regularize=() if plain or not beta else (KL("base", beta, form="k2"),),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2310.10505", title="ReMax")
def remax(group: int = 1, beta: float = 0.1, limit: float = math.inf) -> Recipe:
    """ReMax: the reward of the policy's own greedy answer is the baseline.

    `A_it = Σ_{s≥t} r_is − r(x, greedy(x))`, `L = −Σ_it A_it·logp_it / Σ_it 1`, with
    `r_it = r(x, y)·[t last] − β·(logp_old − ref)_it`.

    Parameters: `group` (answers per prompt, 1; more share the greedy answer's reward), `beta` (KL
    coefficient in the reward, 0.1, the repository's; 0 loads no reference), `limit` (bound on the
    advantage, default ∞, the paper; the repository clips the difference of the outcomes at 5).
    Deviations: the KL is that of the paper, to go; the repository charges each step for its own
    alone. The limit is on the whole advantage, KL included. Reference: 2310.10505.
    """
    return Recipe(
        reward=(KLReward(beta),) if beta else (),
        sampling=Groups(group) >> Probe("greedy"),
        advantage=Versus("greedy", -limit, limit),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2505.14264", title="AAPO")
def aapo(
    group: int = 8, clip_low: float = -0.2, clip_high: float = 0.28, eps: float = 1e-4
) -> Recipe:
    """Advantage-augmented policy optimisation: the group's advantage plus a clipped momentum.

    `A_i = (r_i − μ_g)/(σ_g + eps) + clip(r_i − r_ref_i, clip_low, clip_high)`,
    `L = −Σ_it A_i·logp_it / Σ_it 1`, with the reward of an answer of the reference paired with each
    answer. A group of equal outcomes keeps a signal where the reference does otherwise.

    Parameters: `group` (8; unverified), `clip_low`, `clip_high` (bounds of the momentum, −0.2 and
    0.28, literals in the published code), `eps` (1e-4).
    Deviations: none; neither ratio nor KL, as in the code. Reference: 2505.14264.
    """
    momentum = Versus("reference", clip_low, clip_high)
    return Recipe(
        sampling=Groups(group) >> Probe("reference", policy="base", temperature=1.0, paired=True),
        advantage=Baseline("traj", "group", scale="std", eps=eps) + momentum,
        aggregate=Mean("step", "batch"),
    )


@method(paper="2510.08141", title="AEPO")
def aepo(
    group: int = 8,
    clip: float = 0.2,
    target: float = 0.5,
    high: float = 1.2,
    low: float = 0.8,
    most: int = 60,
    alpha: float = 1.0,
) -> Recipe:
    """Arbitrary entropy policy optimisation: right answers at another temperature steer entropy.

    `L = L_GRPO + α · REINFORCE on right answers drawn at T`, `T = high` while the last batch's mean
    entropy is at most `target`, else `low`. Learning what is right among hot answers spreads the
    policy, learning what is right among cold ones narrows it.

    Parameters: `group` (8), `clip` (0.2), `target` (H0 = 0.5 nats), `high` 1.2 and `low` 0.8
    (factors on the temperature), `most` (steering answers in a batch, 60), `alpha` (advantage of
    their tokens, 1).
    Deviations: the paper adds a separate mean, the code replaces that many of the batch's rows by
    them; here they join the batch, so their weight is `α·n/(B + n)`, near to the code's. They are
    of prompts of their own (the code draws a quarter of the batch's again) and right by their
    score (there: above their own group's mean). As in the code, and unlike the paper's expectation,
    their ratio is that of the plain temperature. Reference: 2510.08141.
    """
    plain = grpo(group, clip, beta=0)
    return plain.but(
        sampling=Groups(group) >> Steer(target, high, low, most=most),
        advantage=plain.advantage + Recorded("control", alpha),
    )


@method(paper="2508.17784", title="PSFT (proximal supervised fine-tuning)")
def psft(
    clip_low: float = 0.2, clip_high: float = 0.28, epochs: int = 1, minibatches: int = 4
) -> Recipe:
    """Proximal supervised fine-tuning: PPO's clip on demonstrated answers, with advantage 1.

    `L = −mean_n min(r_n, clip(r_n, 1−ε_l, 1+ε_h)) = −mean_n min(r_n, 1+ε_h)`, r against the policy
    at the start of the iteration: a token stops being pushed once it is 1+ε_h times as likely.

    Parameters: `clip_low` (0.2; without effect where all advantages are 1), `clip_high` (0.28),
    `epochs` (1), `minibatches` (optimizer steps per iteration, 4; unverified). With one step per
    iteration every ratio is 1, and this is plain supervised fine-tuning.
    Data: a file with the columns `prompt` and `completion`, without a reward function. On any other
    task the policy's own answers are trained on, with their reward to go as advantage.
    Deviations: the warm-up by plain fine-tuning that the paper offers is left out.
    Reference: 2508.17784.
    """
    return Recipe(
        ratio=Ratio("step"),
        surrogate=Clip(clip_low, clip_high),
        aggregate=Mean("step", "batch"),
        update=Adam(epochs, minibatches),
    )
