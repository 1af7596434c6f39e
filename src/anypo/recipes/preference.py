"""Preference: one of two answers is to be likelier than the other, by a margin of log-ratios."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.errors import UsageError
from anypo.core.method import method
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.win_rate import WinRate
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.imitation import Imitation
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.surrogate.regression import PairClip, Preference, Regression


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
        ratio=Ratio("traj", to="ref.base", cap=math.inf),
        surrogate=Preference(beta, smoothing),
        aggregate=Mean("step", "traj", "group", "batch"),
    )


@method(paper="2310.12036", title="IPO")
def ipo(beta: float = 0.1, mean: bool = False) -> Recipe:
    """Identity preference optimisation: the margin is pulled to a finite target, from both sides.

    `L = mean_pairs (Δ − 1/(2β))²`, `Δ = h_w − h_l`, `h = Σ_t (logp − ref)`.

    Parameters: `beta` (τ = 0.1: a target of 5), `mean` (h is the mean over an answer's tokens, as
    in TRL, whose authors were told that the published results used it; the paper's sum otherwise).
    Deviations: none; the same beta means a very different target in the two forms.
    Reference: 2310.12036.
    """
    return dpo().but(
        ratio=Ratio("traj", mean=mean, to="ref.base", cap=math.inf),
        surrogate=Preference(beta, form="squared"),
    )


@method(paper="2407.00617", title="INPO")
def inpo(
    eta: float = 0.0075, ratio: float = 1 / 3, rounds: int = 3, round_steps: int = 100
) -> Recipe:
    """Iterative Nash policy optimisation: self-play against the policy of the round before.

    `L = mean_pairs (H − 1/(2η))²`, `H` the margin of `ρ·h_ref + (1−ρ)·h_t`, with
    `h = Σ_t (logp − anchor)`: the anchors are the reference and π_t, the policy as the round began.

    Parameters: `eta` (η = 0.0075: a target of 66.7), `ratio` (ρ = τ/η = 1/3; 1 is IPO, 0 is mirror
    descent without a reference), `rounds` (3), all of the re-implementation; `round_steps`
    (iterations of a round, 100, ours). Offline or online pairs as in DPO.
    Deviations: the authors published no code. The paper takes the best and the worst of eight
    answers by a preference model; here two are sampled and the reward prefers one.
    Reference: 2407.00617.
    """
    if not 0 <= ratio <= 1:
        raise UsageError(f"ratio={ratio}: it must be between 0 and 1")
    fixed = Ratio("traj", to="ref.base", cap=math.inf)
    moving = Ratio("traj", to="ref.previous", cap=math.inf)
    recipe = dpo().but(
        ratio=ratio * fixed + (1 - ratio) * moving, surrogate=Preference(eta, form="squared")
    )
    return _in_rounds(recipe, "previous", rounds, round_steps)


def _in_rounds(recipe: Recipe, name: str, rounds: int, steps: int) -> Recipe:
    """The recipe with a reference that is taken afresh as every round but the first begins."""
    if not (isinstance(rounds, int) and rounds >= 1):
        raise UsageError(f"rounds={rounds}: it must be a whole number, at least 1")
    if not (isinstance(steps, int) and steps >= 1):
        raise UsageError(f"round_steps={steps}: it must be a whole number, at least 1")
    for k in range(1, rounds):
        recipe = recipe.then(at=k * steps, refresh=name)
    return recipe


@method(paper="2405.00675", title="SPPO", aliases=("sppo_hard",))
def sppo(
    beta: float = 1e-3,
    group: int = 2,
    soft: bool = False,
    rounds: int = 3,
    round_steps: int = 100,
) -> Recipe:
    """Self-play preference optimisation: an answer's log-ratio is fitted to how often it wins.

    `L = mean_groups Σ_i (h_i − (P_i − ½)/β)²`, `h = Σ_t (logp − π_t)`, with P_i the share of wins
    against the group's other answers; for a pair, hard: P_w = 1 and P_l = 0.

    Parameters: `beta` (1e-3, the paper's 1/η; TRL 0.1), `group` (2; the paper estimates P with 5
    answers and trains on the best and the worst), `soft` (the reward *is* the probability of
    winning, as a preference model gives it, and squares are averaged over the group instead of
    summed: the authors' code, where TRL has the hard form), `rounds` (3), `round_steps` (iterations
    of a round, 100, ours: then π_t is the policy as it is).
    Deviations: all answers of the group are trained. Defaults are unverified.
    Reference: 2405.00675.
    """
    if not beta > 0:
        raise UsageError(f"beta={beta}: it must be above 0")
    given = Baseline("traj", "group", centre="off", shift=0.5)
    summed = Mean("step", "traj") * Mean("group", "batch")
    recipe = Recipe(
        sampling=Groups(group),
        advantage=given if soft else WinRate(),
        ratio=Ratio("traj", to="ref.base", cap=math.inf),
        surrogate=Regression(eta=1 / beta),
        aggregate=Mean("step", "traj", "group", "batch") if soft else summed,
    )
    return _in_rounds(recipe, "base", rounds, round_steps)


@method(paper="2310.00212", title="P3O (pairwise PPO)")
def p3o_pairwise(
    clip: float = 0.2, mode: Literal["separate", "joint"] = "separate", mean: bool = False
) -> Recipe:
    """Pairwise PPO: the gradient of the reward difference of two answers, clipped.

    `A = R_1 − R_2`; separate (V1): `J = ½[min(A·r_1, A·clip(r_1)) + min(−A·r_2, −A·clip(r_2))]`;
    joint (V2): `J = ½·min(A·q, A·clip(q))`, `q = r_1/r_2`; `r_i` the ratio of the whole answer.

    Parameters: `clip` (0.2, ours), `mode`, `mean` (ratios of geometric means over tokens; off).
    Deviations: no code is public; where the authors put minimum and clip is our reading,
    unverified. The joint form is not symmetric in the two answers, so which one is first is drawn
    by lot. The paper has a KL to the SFT model inside R: add `KLReward`. Reference: 2310.00212.
    """
    if mode not in ("separate", "joint"):
        raise UsageError(f"mode={mode!r}: it must be separate or joint")
    return dpo().but(
        advantage=Baseline("traj", "group", leave_one_out=True),
        ratio=Ratio("traj", mean=mean),
        surrogate=Clip(clip, clip) if mode == "separate" else PairClip(clip, clip),
    )


@method(paper="2405.16436", title="RPO (DPO with an SFT term)", aliases=("rpo",))
def rpo_regularized(beta: float = 0.1, eta: float = 0.2, sft_mean: bool = True) -> Recipe:
    """Regularised preference optimisation: DPO that also imitates the chosen answers.

    `L = L_DPO − η·mean_pairs (1/n_w)·Σ_t logp_w`.

    Parameters: `beta` (0.1), `eta` (0.2, OpenRLHF's script; 0.005 with sums, alignment-handbook),
    `sft_mean` (the mean over the tokens of an answer, as in OpenRLHF; otherwise their sum).
    Deviations: the paper's imitated answers are those of a base policy, of which the chosen ones
    are its practical choice. Reference: 2405.16436.
    """
    imitated = (Imitation(eta, mean=sft_mean),) if eta else ()
    return dpo(beta).but(regularize=imitated)
