"""Regression: the log-ratio is fitted to an advantage, for tokens, answers, or within a group."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.errors import UsageError
from anypo.core.method import method
from anypo.core.neutral import Groups, Mean, Reinforce
from anypo.core.piece import Off
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.curve import Curve
from anypo.pieces.advantage.versus import Versus
from anypo.pieces.ratio.partition import Partition
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.ratio.transform import Standardise
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.value import ValueLoss
from anypo.pieces.reward.kl import KLReward
from anypo.pieces.sampling.probe import Probe
from anypo.pieces.surrogate.importance import Importance
from anypo.pieces.surrogate.regression import GroupRegression, Regression
from anypo.recipes.policy_gradient import ppo


@method(paper="2504.19599", title="GVPO")
def gvpo(group: int = 8, beta: float = 0.1) -> Recipe:
    """Group variance policy optimisation: centred implicit rewards match centred real rewards.

    `L = 1/(2(G−1)) Σ_g Σ_i [ β(h_i − h̄) − (R_i − R̄) ]²`, `h_i = Σ_t (logp − logp_old)`.

    Parameters: `group` (G ≥ 2), `beta` (0.1, the code's script; unverified in the paper).
    Deviations: none; the sum over groups is kept. Rewards are not divided by their deviation, which
    would move the optimum. Reference: 2504.19599.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group"),
        ratio=Ratio("traj", cap=math.inf),
        surrogate=GroupRegression(beta, eta=1.0, scale=0.5),
        aggregate=Mean("step", "traj", "group"),
    )


@method(paper="2404.16767", title="REBEL")
def rebel(eta: float = 1.0, group: int = 2) -> Recipe:
    """Regression to relative rewards: log-ratio differences match reward differences.

    `L = mean over pairs of [ (h_1 − h_2) − η(R_1 − R_2) ]²`, `h = Σ_t (logp − logp_old)`.

    Parameters: `eta` (1.0, the code's default), `group` (2: one pair per prompt; more average over
    all pairs). Deviations: the paper writes `(1/η)(h_1−h_2) − (R_1−R_2)`; the code, followed here,
    multiplies it by η: the same minimum, and the vectors' scale. Reference: 2404.16767.
    """
    return gvpo(group).but(
        surrogate=GroupRegression(beta=1.0, eta=eta, scale=2.0),
        aggregate=Mean("step", "traj", "group", "batch"),
    )


@method(paper="2505.20686", title="A*-PO")
def a_star_po(beta1: float = 0.5, beta2: float = 1e-3, samples: int = 8) -> Recipe:
    """Optimal-advantage regression: the log-ratio to the reference is fitted to R − V*.

    `V*(x) = β1·log mean_j exp(R_j/β1)` over answers of the reference,
    `L = mean_i (β2·Σ_t (logp − ref)_it + V* − R_i)²`.

    Parameters: `beta1` (0.5; ∞ is the mean, → 0 the best), `beta2` (1e-3), both the code's,
    `samples` (N = 8 reference answers per prompt; unverified). One answer is trained per prompt.
    Deviations: the paper has one β for both stages, the code two. V* is measured anew whenever a
    prompt is drawn, with fresh reference answers, not once for the whole data set before training;
    prompts that no reference answer solves are kept (the code may drop them).
    Reference: 2505.20686.
    """
    return Recipe(
        sampling=Groups(1) >> Probe("v_star", samples, "base", temperature=1.0, tau=beta1),
        advantage=Versus("v_star"),
        ratio=Ratio("traj", to="ref.base", cap=math.inf),
        surrogate=Regression(beta=beta2),
        aggregate=Mean("step", "traj", "batch"),
    )


@method(paper="2306.02231", title="APA")
def apa(
    form: Literal["square", "log"] = "square",
    adv_coef: float = 0.0,
    kl_coef: float = 0.01,
    value_coef: float = 1.0,
    lam: float = 0.95,
    epochs: int = 4,
    minibatches: int = 4,
) -> Recipe:
    """Advantage-induced policy alignment: every token's log-ratio is fitted to its advantage.

    `L = mean_n [ (log r_n − A_n/λ)² + c_v·½·(V_n − R_n)² ]`, with whitened GAE advantages; the form
    `log` has `−exp(A_n/λ)·logp_n` for the square: advantage-weighted regression.

    Parameters: `form` (`square`, the paper's; `log`, the code's other one), `adv_coef` (1/λ;
    0: 10 for the square, the code's examples, and 0.5 for the log), `kl_coef` (KL in the reward:
    0.01, ours; 0 loads no reference), `value_coef` (c_v = 1), `lam` (GAE, 0.95), `epochs`,
    `minibatches` (4 and 4, PPO's here; unverified).
    Deviations: none in the objective, which nothing clips. Reference: 2306.02231.
    """
    base = ppo(lam=lam, epochs=epochs, minibatches=minibatches).but(
        reward=(KLReward(kl_coef),) if kl_coef else (), regularize=(ValueLoss(value_coef),)
    )
    if form == "square":
        return base.but(surrogate=Regression(eta=adv_coef or 10.0))
    if form != "log":
        raise UsageError(f"form={form!r} must be square or log")
    weight = Curve("exp", adv_coef or 0.5, rising=True)
    return base.but(advantage=base.advantage >> weight, ratio=Off(), surrogate=Reinforce())


@method(paper="2506.07464", title="Reg-GRPO (DeepVideo-R1)")
def reg_grpo(group: int = 8, eps: float = 1e-4, eta: float = 0.0, beta: float = 0.0) -> Recipe:
    """Regressive GRPO: the answer's log-ratio, standardised in its group, is fitted to A.

    `Â_i = (ρ_i − mean_g ρ)/(sd_g ρ + eps)`, `ρ_i = Σ_t (logp − logp_old)`, `A` likewise of R;
    `L = mean_i (A_i − Â_i)² + β·k3`.

    Parameters: `group` (8), `eps` (1e-4, ours: at ratio 1 the gradient is 1/eps times that of the
    plain form), `eta` (0; above it the un-normalised form is used, `(ρ_i/eta − A_i)²`, which also
    fixes the length of a step), `beta` (0).
    Deviations: the paper's code is not public. That log-ratios are summed, that the deviation
    divides by G−1 and has a gradient, `eps` and `beta` are ours, unverified. Inputs made easier or
    harder by the paper's difficulty measure are left out. Reference: 2506.07464.
    """
    ratio = Ratio("traj", cap=math.inf)
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", scale="std", eps=eps),
        ratio=ratio if eta else ratio >> Standardise(eps=eps),
        surrogate=Regression(beta=1 / eta if eta else 1.0),
        regularize=(KL("base", beta),) if beta else (),
        aggregate=Mean("step", "traj", "batch"),
    )


@method(paper="2509.15207", title="FlowRL")
def flowrl(
    group: int = 8, beta: float = 15.0, weight_low: float = 0.0, weight_cap: float = 10.0
) -> Recipe:
    """Flow balancing: answers are sampled in proportion to exp(β·reward), by trajectory balance.

    `δ_i = log Z(x) + mean_t logp_it − mean_t ref_it − β·A_i`,
    `L = mean_i sg(clip(exp Σ_t (logp − logp_old), low, cap))·δ_i²`, `A` as in GRPO.

    Parameters: `group` (8), `beta` (15, the code's), `weight_low` and `weight_cap` (bounds of the
    importance weight: 0 and 10, those of the code in verl-recipe; the paper clips it around 1, as
    PPO does; the authors' repository leaves it as it is: cap ∞).
    Deviations: log Z is a linear head on the state at the end of the prompt, where the code has a
    network of three layers on the mean state of the prompt. The weight has the sum of the
    log-ratios although δ has means, as in all three versions. Reference: 2509.15207.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", scale="std"),
        ratio=Ratio("traj", mean=True, to="ref.base") + Partition(),
        surrogate=Regression(eta=beta) * Importance("traj", low=weight_low, high=weight_cap),
        aggregate=Mean("step", "traj", "batch"),
    )
