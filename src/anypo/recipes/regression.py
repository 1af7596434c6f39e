"""Regression and preference: log-ratios of whole answers are compared within a group."""

from __future__ import annotations

from anypo.core.method import method
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.surrogate.regression import GroupRegression, Preference


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
        ratio=Ratio("traj"),
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


@method(paper="2305.18290", title="DPO")
def dpo(beta: float = 0.1, smoothing: float = 0.0) -> Recipe:
    """Direct preference optimisation: logistic loss on the margin of implicit rewards.

    `L = −mean_pairs[ (1−e)·log σ(βΔ) + e·log σ(−βΔ) ]`, `Δ = h_w − h_l`, `h = Σ_t (logp − ref)`.

    Parameters: `beta` (0.1), `smoothing` (e = 0). On a task with chosen and rejected answers the
    pairs are the data's; on any other task two answers are sampled and the reward prefers one.
    Deviations: none offline; sampled pairs are the online form. Reference: 2305.18290.
    """
    return Recipe(
        sampling=Groups(2),
        advantage=Baseline("traj", "group"),
        ratio=Ratio("traj", to="ref.base"),
        surrogate=Preference(beta, smoothing),
        aggregate=Mean("step", "traj", "group", "batch"),
    )
