"""Numbers about a batch and an update, under the names that dashboards know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Surrogate
from anypo.core.recipe import Objective
from anypo.engine.pairs import compares, margins
from anypo.math import kl, segments


def clip_fractions(objective: Objective, batch: Batch) -> tuple[float, float]:
    """Shares of steps with an advantage and no gradient: by the bounds, and by the dual clip.

    Found by differentiating, so they hold for every surrogate that works through `log_ratio`; one
    that detaches the ratio gives NaN.
    """
    surrogate = objective.surrogate
    everything = _flat(objective, surrogate, batch)
    if not hasattr(surrogate, "dual"):
        return everything, 0.0
    bounds = _flat(objective, replace(surrogate, dual=math.inf), batch)  # pyright: ignore
    return bounds, everything - bounds


def _flat(objective: Objective, surrogate: Surrogate, batch: Batch) -> float:
    leaf = objective.ratio(batch).detach().clone().requires_grad_()
    value = surrogate(batch.with_({"log_ratio": leaf})).sum()
    if not value.requires_grad:
        return math.nan
    (grad,) = torch.autograd.grad(value, leaf, allow_unused=True)
    if grad is None:
        return math.nan
    return float(((grad == 0) & (batch["advantage"] != 0)).double().mean())


def update_metrics(objective: Objective, batch: Batch) -> dict[str, float]:
    """Loss, ratios, clip fraction, penalties, entropy of an update batch with its live columns."""
    with torch.no_grad():
        out = {"loss": float(objective.loss(batch))}
        if "logp" in objective.ratio.needs:  # else a head stands where a ratio would
            out |= ratios(objective.ratio(batch))
        if compares(objective) and len(gaps := margins(objective, batch)):
            out |= {"accuracy": float((gaps > 0).double().mean()), "margin": float(gaps.mean())}
        for piece in objective.regularize:
            if piece.metric and piece.coefficient:
                out[piece.metric] = float(piece(batch).mean()) / piece.coefficient
        if "logp_old" in batch and "logp" in batch:
            gap = kl.estimate(batch["logp_old"], batch["logp"], "k3")
            out["approx_kl"] = float(gap.mean())
        if "logp_mu" in batch and "logp" in batch:
            # Against the policy at the start of the update: a gap there is a sampler that lies.
            scored = batch["logp_old"] if "logp_old" in batch else batch["logp"]
            gap = (scored - batch["logp_mu"]).abs()
            out["sampling/sampling_logp_difference/mean"] = float(gap.mean())
            out["sampling/sampling_logp_difference/max"] = float(gap.max())
        elif "logp" in batch:  # answers that nobody sampled: how far the policy is from them
            out["nll"] = -float(batch["logp"].double().mean())
        if "value" in batch and "return" in batch:
            target, error = batch["return"].double(), (batch["return"] - batch["value"]).double()
            spread = float(target.var(unbiased=False))
            gone = float(error.var(unbiased=False))
            out["explained_variance"] = 1 - gone / spread if spread > 0 else math.nan
        if "drift" in batch:
            out["two_pass_drift"] = float(batch["drift"].max())
    clipped, dual = clip_fractions(objective, batch)
    if math.isfinite(clipped):
        out |= {"clip_ratio/region_mean": clipped, "clip_ratio/dual_mean": dual}
    return out


def ratios(log_ratio: Tensor) -> dict[str, float]:
    """Extremes of the ratios, those that 5 and 95 of 100 steps do not exceed, and capped ones."""
    ordered = log_ratio.double().sort().values
    last = len(ordered) - 1
    places = {"min": 0, "p05": round(0.05 * last), "p95": round(0.95 * last), "max": last}
    found = {f"ratio/{name}": float(ordered[k].exp()) for name, k in places.items()}
    return {**found, "ratio/capped": float((log_ratio.abs() >= 20).double().mean())}


def _units(batch: Batch, x: Tensor, level: str) -> Tensor:
    ids, count = segments.dense(batch.id(level))
    return x[segments.first_index(ids, count)]


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Rewards, lengths and groups of all scored trajectories of an iteration, kept or not."""
    if not len(batch):
        return {}
    outcome = batch.sum(batch["score"] if "score" in batch else batch["reward"], within="traj")
    per_traj = _units(batch, outcome, "traj").double()
    length = _units(batch, batch.size("step", "traj"), "traj")
    spread = _units(batch, batch.std(outcome, over="traj", within="group"), "group")
    table = batch.table("traj")
    out = {
        "reward": float(per_traj.mean()),
        "reward_std": float(per_traj.std()) if len(per_traj) > 1 else 0.0,
        "completions/mean_length": float(length.mean()),
        "completions/max_length": float(length.max()),
        "completions/min_length": float(length.min()),
    }
    if batch.count("group") < batch.count("traj"):
        out["frac_reward_zero_std"] = float((spread == 0).double().mean())
    if "truncated" in table:
        out["completions/clipped_ratio"] = float(
            torch.as_tensor(table["truncated"]).double().mean()
        )
    if "episode_return" in table:
        finished = torch.as_tensor(table["episode_return"], dtype=torch.float64)
        if (known := finished[~finished.isnan()]).numel():
            out["rollout/ep_rew_mean"] = float(known.mean())
    out |= _parts(table)
    if "logp_mu" in batch:
        # E[−log π] of what was sampled is the entropy, without bias and without a forward pass.
        out["entropy"] = -float(batch["logp_mu"].double().mean())
    return out


def _parts(table: Mapping[str, Any]) -> dict[str, float]:
    """`rewards/NAME/mean` and `…/std` of each part of a reward, over those it could score."""
    out = {}
    for name in (n for n in table if n.startswith("rewards/")):
        known = torch.tensor([math.nan if x is None else x for x in table[name]]).double()
        known = known[~known.isnan()]
        if len(known):
            out[f"{name}/mean"] = float(known.mean())
            out[f"{name}/std"] = float(known.std()) if len(known) > 1 else 0.0
    return out


def interval(successes: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson 95 % interval of a proportion; (0, 1) without observations."""
    if not total:
        return 0.0, 1.0
    p, n = successes / total, total
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)
