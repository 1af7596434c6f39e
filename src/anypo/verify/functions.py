"""What vector files name that is no method: a piece alone, or a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.neutral import Mean
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe
from anypo.math import coarse, kl, sde
from anypo.math.solve import trust_region_step
from anypo.math.step_size import signal_step
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.conflict import Conflict
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.regularizer.covariance import TopCovariance
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.sampling.probe import soft_mean
from anypo.pieces.surrogate.clip import clipped
from anypo.pieces.surrogate.trust import Trust
from anypo.recipes.group_weights import lens
from anypo.recipes.shaping import future_reward_subset, t_spmo

Function = Callable[..., dict[str, Any]]


def _gae(**options: Any) -> Recipe:
    return Recipe(advantage=GAE(**options) >> Whiten(under_root=True))


def _penalty(**options: Any) -> Recipe:
    options = {"form": options.pop("estimator", "k3"), "beta": 1.0, **options}
    return Recipe(regularize=(KL(**options),), aggregate=Mean("step", "batch"))


def _conflict(**options: Any) -> Recipe:
    return Recipe(advantage=Conflict(**options) * Baseline())


def _lens(alpha: float = 1.0, eps: float = 1e-6) -> Recipe:
    """The file keeps what multiplies a group's loss apart from its advantage."""
    return lens(alpha=1.0, eps=eps)


ALONE: dict[str, Callable[..., Recipe]] = {
    "gae": _gae,
    "s-grpo-subset": t_spmo,
    "gtpo-trajectory": _conflict,
    "lens": _lens,
    **dict.fromkeys(("kl-k1", "kl-k2", "kl-k3", "kl-abs", "kl-k3-straight-through"), _penalty),
}
"""Pieces that a file tests alone: method → the recipe of nothing else."""


def _soft_value(ref_rewards: list[float], beta1: float) -> dict[str, Any]:
    return {"v_star": soft_mean(ref_rewards, beta1)}


def _trust_region(
    fisher: list[list[float]],
    loss_gradient: list[float],
    delta: float,
    damping: float,
    cg_iters: int,
) -> dict[str, Any]:
    matrix = torch.tensor(fisher, dtype=torch.float64)
    gradient = torch.tensor(loss_gradient, dtype=torch.float64)
    found = trust_region_step(matrix.mv, gradient, delta, damping, cg_iters)
    names = ("natural_direction", "step_scale", "full_step", "quadratic_kl")
    return dict(zip(names, found, strict=True))


def _top_divergence(
    logits: list[Any], topk_ids: list[Any], topk_behavior_logp: list[Any]
) -> dict[str, Any]:
    logp = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), -1)
    of_top = logp.gather(-1, torch.tensor(topk_ids))
    anchor = torch.tensor(topk_behavior_logp, dtype=torch.float64)
    return {form: coarse.top(of_top, anchor, form) for form in ("kl", "tv")}


def _baselines(
    rewards: list[float], group: list[int], tau: float, baseline_shift: float
) -> dict[str, Any]:
    """Methods of other files whose advantage is an option of `Baseline`, on one-step answers."""
    one = torch.arange(len(rewards))
    reward = torch.tensor(rewards, dtype=torch.float64)
    batch = Batch({"reward": reward}, {"traj": one, "group": torch.tensor(group)})
    found = {
        "opmd_mean": Baseline(),
        "opmd_logavgexp": Baseline(centre="soft", tau=tau),
        "asymre": Baseline(shift=baseline_shift),
        "rec_std": Baseline(scale="std", ddof=0),
        "gbpo_advantage": Baseline(scale="std"),
        "gbpo_target_adv": Baseline(centre="median", scale="std"),
        "rpg": Baseline(),
    }
    return {name: piece(batch) for name, piece in found.items()}


def _future_rewards(
    rewards: list[list[float]], gamma: float, k: int, segment: list[int]
) -> dict[str, Any]:
    """Every plan of the recipe on the same rewards; segments are the same in all rows."""
    reward = torch.tensor(rewards, dtype=torch.float64)
    rows, steps = reward.shape
    traj = torch.arange(rows).repeat_interleave(steps)
    ids = {"traj": traj, "segment": traj * steps + torch.tensor(segment).repeat(rows)}
    batch = Batch({"reward": reward.flatten()}, ids)
    plans = ("full", "greedy", "lookahead", "segment")
    recipes = {plan: future_reward_subset(plan=plan, gamma=gamma, k=k) for plan in plans}
    return {plan: r.advantage(batch).reshape(rows, steps) for plan, r in recipes.items()}


def _denoising_step(**given: Any) -> dict[str, Any]:
    """One step of a flow model as an SDE: its distribution, and the losses on what it drew."""
    table = {k: torch.tensor(v, dtype=torch.float64) for k, v in given.items() if k != "step"}
    x, drawn = table["x"], table["noise"]
    t, then = table["sigmas"][given["step"]], table["sigmas"][given["step"] + 1]
    scale = sde.noise_scale(t, table["sigmas"][1], given["noise_level"])
    std = sde.step_std(scale, then - t)
    mean, new, ref = (
        sde.step_mean(x, table[k], t, then - t, scale) for k in ("v", "v_new", "v_ref")
    )
    x_next = mean + std * drawn
    logp, logp_new = (sde.step_logp(x_next, m, std) for m in (mean, new))
    ratio, clip = (logp_new - logp).exp(), given["clip"]
    objective = clipped(ratio, table["advantages"], 1 - clip, 1 + clip, math.inf)
    # The code divides by scale², the true divergence by std² = scale²·|dt|; both average.
    code, true = (kl.gaussian(new, ref, s) / mean[0].numel() for s in (scale, std))
    loss = -objective.mean()
    facts = {"s_t": scale, "std": std, "mean": mean, "x_next": x_next, "ratio": ratio}
    facts |= {"logp": logp, "logp_new": logp_new, "kl_code": code, "kl_true_per_dim": true}
    return {**facts, "policy_loss": loss, "loss_code": loss + given["beta"] * code.mean()}


PARTS: dict[type[Piece], str] = {
    TopCovariance: "selected",
    Trust: "trust_mask",
}
"""Pieces whose own result a file reports beside the loss, and its name there."""


FUNCTIONS: dict[str, Function] = {
    "group-baselines-b": _baselines,
    "oblr-po function": signal_step,
    "a-star-po-vstar": _soft_value,
    "future-reward-subset": _future_rewards,
    "dppo-topk-divergence": _top_divergence,
    "trpo": _trust_region,
    "flow-grpo-image": _denoising_step,
}
"""Functions that a file tests: method → its results by the file's names; `METHOD KIND` where the
method is a recipe as well."""
