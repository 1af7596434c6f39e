"""Group methods whose credit is no factor on a centred outcome: order, risk, process, tokens."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.method import bounded, method
from anypo.core.neutral import Groups, Mean, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.bundles import BundleRisk
from anypo.pieces.advantage.conflict import Conflict
from anypo.pieces.advantage.curve import Curve
from anypo.pieces.advantage.gae import Whiten
from anypo.pieces.advantage.order import Kalman, MaxAtK
from anypo.pieces.advantage.softmax import Average
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.ratio.transform import Pool
from anypo.pieces.reward.entropy import EntropyReward
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.update.signal import SignalStep
from anypo.recipes.group_relative import grpo


@method(paper="2510.23393", title="max@k policy gradient")
def max_at_k(
    group: int = 8, k: int = 2, baseline: Literal["off", "loo", "loo-1"] = "off"
) -> Recipe:
    """The gradient of the best of k answers, from all the k-subsets of a group.

    `L = −(1/#groups) Σ_i s_i Σ_t logp_it`, `s_i = C(n, k)^{−1} Σ_{I ∋ i, |I| = k} max_I r`.

    Parameters: `group` (n), `k` (2; the paper names no default), `baseline` (`off`, the paper's
    signal, which pushes groups of equal reward too; `loo-1` or `loo`, see `MaxAtK`).
    Deviations: the paper's off-policy form multiplies by the ratios of a subset; unverified, and
    left out. Reference: 2510.23393.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=MaxAtK(k, baseline),
        aggregate=Mean("group", "batch"),
    )


@method(paper="2511.23310", title="OBLR-PO")
def oblr_po(
    group: int = 8, smoothness: float = 0.0, smoothing: float = 0.9, floor: float = 0.1
) -> Recipe:
    """REINFORCE with the baseline of least variance and a step as long as its gradient is certain.

    `b = Σ_j w_j r_j / Σ_j w_j`, `w_j = ‖∇ Σ_t logp_jt‖²`, `A_i = r_i − b`;
    `lr = (1/L)·snr/(1 + snr)`.

    Parameters: `group`, `smoothness` (L; 0: 1/L is the run's learning rate), `smoothing` (0.9),
    `floor` (least share of 1/L, 0.1).
    Deviations: the schedule is our derivation, which agrees with the abstract; the paper's
    estimator, smoothing and constants are unverified (see `SignalStep`). The step is AdamW's.
    The column `score_norm` costs one backward pass per trajectory. Reference: 2511.23310.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", weight="score_norm"),
        update=SignalStep(smoothness, smoothing, floor),
    )


@method(paper="2603.26535", title="PAPO (process-aware)")
def papo_process(
    group: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    lam: float = 1.0,
    eps: float = 1e-6,
) -> Recipe:
    """Outcome and process are normalised apart: the judge's score only ranks right answers.

    `A_i = z_g(r_i) + λ·z_C(p_i)`, C the right answers of the group, 0 for the wrong ones.

    Parameters: `group` (8), `clip_low` 0.2, `clip_high` 0.28, `lam` (λ, 1), `eps` (1e-6). Needs the
    judge's score, which the reward reports as `process`.
    Deviations: none; deviations between 0 and eps, which the code takes for 0, are divided by. An
    answer is right if its unshaped score is at least 1. Reference: 2603.26535.
    """
    outcome = Baseline("traj", "group", scale="std", eps=eps)
    process = Baseline("traj", "group", scale="std", eps=eps, fact="process", among="correct")
    return grpo(group, beta=0).but(
        advantage=outcome + bounded("lam", lam) * process, surrogate=Clip(clip_low, clip_high)
    )


@method(paper="2505.07527", title="KRPO")
def krpo(
    group: int = 8,
    clip: float = 0.2,
    beta: float = 0.04,
    process_var: float = 1e-5,
    meas_var: float = 1e-2,
    eps: float = 1e-8,
) -> Recipe:
    """GRPO whose mean and deviation are those of a Kalman filter run over the group.

    `A_i = (r_i − x_i)/(√P_i + eps)`, x and P after the filter read r_1 … r_i (see `Kalman`).

    Parameters: `group`, `clip`, `beta` (as in `grpo`), `process_var` 1e-5, `meas_var` 1e-2, `eps`
    1e-8 (the code's).
    Deviations: none in the filter; the order is that of the lots. A group of one, which the code
    allows, is refused. Reference: 2505.07527 (id from memory).
    """
    return grpo(group, clip, beta).but(advantage=Kalman(process_var, meas_var, eps=eps))


@method(paper="2510.00911", title="RiskPO")
def risk_po(
    group: int = 8,
    clip: float = 0.2,
    size: int = 5,
    alpha: float = 0.2,
    beta: float = 0.8,
    mix: float = 1.5,
    natural: bool = True,
    credit: Literal["std", "uniform", "share"] = "std",
    rate: float = 0.1,
) -> Recipe:
    """Mixed value at risk: prompts are bundled, and the lower tail of a bundle's sum counts most.

    `A = (mix·v + u)/(mix + 1)/σ_bundle/σ_prompt`, u the slope of the range value at risk between
    two tracked quantiles, v that of the lower tail (see `BundleRisk`).

    Parameters: `group` (5 to 10), `clip`, `size` (most prompts of a bundle, 5), `alpha` 0.2, `beta`
    0.8 (levels of the quantiles; a script has 0.9), `mix` 1.5, `natural` (yes; one script turns it
    off), `credit` (`std`; a script has `share`, there sum-mean), `rate` 0.1.
    Deviations: bundles are nearly equal parts of the batch. Papers of equal outcome give 0.
    Reference: 2510.00911.
    """
    risk = BundleRisk(size, alpha, beta, mix, natural, credit=credit, rate=rate)
    return grpo(group, clip, beta=0).but(advantage=risk)


@method(paper="2508.04349", title="GTPO (token)")
def gtpo_token(
    group: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    base: float = 1.0,
    bonus: float = 0.1,
    eps: float = 1e-8,
    apart: bool = True,
) -> Recipe:
    """Every token has a reward: right ones share a bonus by entropy, wrong ones a penalty.

    `r_it = base + bonus·d·H_it/Σ H` or `−base − bonus·d·H_it⁻¹/Σ H⁻¹` over the answers of the same
    kind at the same place; `A = (r − mean)/√(var + eps)` over all right and all wrong tokens apart.

    Parameters: `group`, `clip_low`, `clip_high` (DAPO's), `base` 1, `bonus` 0.1 (second-hand),
    `eps`, `apart` (yes, the paper's equation 6; without it, ours: one mean over all tokens).
    Deviations: none known. Where they are standardised apart, both kinds have mean 0: whether an
    answer was right does not show in the advantage, only how its entropies rank. The length control
    of the paper's appendix is left out. An answer is right if its reward is at least 1.
    Reference: 2508.04349.
    """
    within = "sign" if apart else "batch"
    return grpo(group, beta=0).but(
        reward=(EntropyReward("step", base, bonus),),
        advantage=Return(ahead=1) >> Whiten(within, eps, ddof=0, under_root=True),
        surrogate=Clip(clip_low, clip_high),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2508.04349", title="GRPO-S")
def grpo_s(
    group: int = 8, clip: float = 0.2, base: float = 1.0, bonus: float = 0.1, eps: float = 1e-8
) -> Recipe:
    """GRPO on rewards that grow with the entropy of right answers and fall with that of wrong ones.

    `r_i = base + bonus·n·H_i/Σ_P H` if right, `−base − bonus·m·H_i⁻¹/Σ_Q H⁻¹` if wrong, H the mean
    entropy of the answer; z-score within the group; ratio `(1/n_i) Σ_t r_it`.

    Parameters: `group`, `clip`, `base` 1, `bonus` 0.1 (of a third party), `eps` (1e-8, of σ).
    Deviations: none known; the arithmetic mean of token ratios and a z-score over the whole group
    are unverified. Reference: 2508.04349.
    """
    return grpo(group, clip, beta=0, eps=eps).but(
        reward=(EntropyReward("traj", base, bonus),),
        ratio=Ratio("step") >> Pool("traj", arithmetic=True),
    )


@method(paper="2508.03772", title="GTPO (trajectory)")
def gtpo_trajectory(
    group: int = 8,
    boost: float = 2.0,
    penalty: float = 0.1,
    most_entropy: float = 0.7,
    per_conflict: bool = False,
) -> Recipe:
    """No negative update for what good and bad answers share; answers of high entropy are left out.

    `L = −(1/#groups) Σ_i (1/n_i) Σ_t δ_it·Ã_i·logp_it`, `Ã_i = r_i − μ − c·h_i` if `h_i ≤ h_max`,
    else 0; h the answer's mean entropy, δ see `Conflict`.

    Parameters: `group`, `boost` (W, 2), `penalty` (c, 0.1), `most_entropy` (h_max, 0.7 nats; the
    paper's threshold is ln 2), `per_conflict` (divided by the number of conflict tokens, which only
    the code does, with a wrong count; default no).
    Deviations: groups are averaged, where the code sums rows over what a device holds. Groups of
    equal reward keep the entropy term, as published. Reference: 2508.03772 (id from memory).
    """
    entropy = Average("entropy_old")
    calm = entropy >> Curve("step", middle=bounded("most_entropy", most_entropy))
    centred = Baseline("traj", "group") + -bounded("penalty", penalty, high=math.inf) * entropy
    return Recipe(
        sampling=Groups(group),
        advantage=Conflict(boost, per_conflict) * calm * centred,
        aggregate=Mean("step", "traj", "group", "batch"),
    )
