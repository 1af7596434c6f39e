"""Policy gradients without and with a critic: REINFORCE, RLOO, PPO."""

from __future__ import annotations

import math

from anypo.core.method import method
from anypo.core.neutral import Adam, Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.value import ValueLoss
from anypo.pieces.surrogate.clip import Clip


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

    `A_i = r_i − (Σ_{j≠i} r_j)/(G−1)`, `L = −(1/B) Σ_i A_i Σ_t logp_it + β·KL`.

    Parameters: `group` (G, paper 2 or 4), `beta` (KL coefficient, paper 0.03 to 0.1 by task).
    Deviations: the paper subtracts β·(logp − ref) from the reward of the whole answer; here the
    penalty is the k2 estimator in the loss, which has the same expected gradient when on policy.
    Reference: Back to Basics, 2402.14740.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", leave_one_out=True),
        regularize=(KL("base", beta, form="k2"),) if beta else (),
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
