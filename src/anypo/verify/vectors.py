"""Reading a vector file's case: padded rows to a `Batch`, field names to the paths of a recipe.

Nothing here calculates: rows are flattened, names are translated, and the recipe does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.dump import rows
from anypo.core.neutral import Mean
from anypo.core.recipe import Recipe

FLOAT = torch.float64

AGGREGATES = {
    "token-mean": Mean("step", "batch"),
    "token-sum": Mean("batch"),
    "seq-mean-token-sum": Mean("traj", "batch"),
    "seq-mean-token-mean": Mean("step", "traj", "batch"),
    "group-mean-token-mean": Mean("step", "traj", "group", "batch"),
}
"""verl's words for aggregations."""

COLUMNS = {
    "logp": "logp",
    "logp_old": "logp_old",
    "logp_ref": "ref.base",
    "logp_mu": "logp_mu",
    "advantages": "advantage",
    "values": "value",
    "old_values": "value_old",
    "returns": "return",
    "entropy": "entropy",
}
"""Padded inputs that are columns of the batch."""

UNITS = {"rewards": "reward", "scores": "reward", "metric": "score"}
"""Inputs with one number per row: they stand on the row's last step."""

PATHS = {
    "clip_low": ("surrogate.low",),
    "clip_high": ("surrogate.high",),
    "dual_clip": ("surrogate.dual",),
    "low_start": ("surrogate.low",),
    "low_max": ("surrogate.low_max",),
    "low_step": ("surrogate.increment",),
    "high_start": ("surrogate.high",),
    "high_max": ("surrogate.high_max",),
    "high_step": ("surrogate.increment",),
    "target": ("surrogate.target",),
    "eta": ("surrogate.eta",),
    "label_smoothing": ("surrogate.smoothing",),
    "beta": ("surrogate.beta", "regularize.0.beta"),
    "kl": ("regularize.0.form",),
    "value_clip": ("regularize.0.clip",),
    "eps": ("surrogate.eps", "advantage.eps"),
    "ddof": ("advantage.ddof",),
    "scale_by_std": ("advantage.scale",),
    "agg": ("aggregate",),
    "aggregation": ("aggregate",),
    "norm_const": ("aggregate.length",),
    "max_len": ("reward.0.limit",),
    "buffer_len": ("reward.0.buffer",),
    "penalty_factor": ("reward.0.factor",),
}
"""Inputs that are hyper-parameters, with the first path that the recipe has."""

SHAPES = frozenset({"mask", "lengths", "group", "note"})
"""Inputs that shape the batch, or say something to a reader."""

SAME = frozenset({"grad_through_mean"})
"""Options of a published code that change no number: centred residuals sum to zero."""


def known(inputs: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """Inputs that this module cannot place: a case with some is not covered."""
    ours = {*COLUMNS, *UNITS, *SHAPES, *SAME, *PREFERENCES}
    return sorted(k for k in inputs if k not in ours and not path_of(k, recipe))


def path_of(name: str, recipe: Recipe) -> str:
    """The recipe's path for a hyper-parameter, or an empty string."""
    paths = rows(recipe)
    return next((p for p in PATHS.get(name, ()) if p in paths), "")


def configure(recipe: Recipe, inputs: Mapping[str, Any]) -> Recipe:
    """The recipe with the case's hyper-parameters."""
    if "values" in inputs and "logp" not in inputs:  # a critic's loss alone has no coefficient
        recipe = recipe.set("regularize.0.coef", 1.0)
    for name, value in inputs.items():
        path = path_of(name, recipe)
        if not path or (path == "aggregate" and value not in AGGREGATES):
            continue
        if path == "aggregate":
            value = AGGREGATES[value]
        elif name == "dual_clip":
            value = math.inf if value is None else value
        elif name == "scale_by_std":
            value = "std" if value else "off"
        recipe = recipe.set(path, value)
    return recipe


def batch_of(inputs: Mapping[str, Any]) -> tuple[Batch, Tensor]:
    """The case's batch, and the mask `[B, T]` that says where its steps stand."""
    mask = _mask(inputs)
    row = torch.nonzero(mask)[:, 0]
    count = len(mask)
    group = torch.as_tensor(inputs.get("group", _pairs(inputs, count)))
    batch = Batch({}, {"traj": row, "seq": row, "group": group[row]})
    columns = {
        COLUMNS[name]: torch.as_tensor(inputs[name], dtype=torch.float64)[mask]
        for name in COLUMNS
        if name in inputs
    }
    last = batch.last("traj")
    for name in (n for n in UNITS if n in inputs):
        outcome = torch.as_tensor(inputs[name], dtype=torch.float64)[row]
        columns[UNITS[name]] = torch.where(last, outcome, torch.zeros_like(outcome))
    return batch.with_(columns), mask


def _mask(inputs: Mapping[str, Any]) -> Tensor:
    if "mask" in inputs:
        return torch.as_tensor(inputs["mask"]).bool()
    if "lengths" in inputs:
        lengths = torch.as_tensor(inputs["lengths"])
        return torch.arange(int(lengths.max())) < lengths[:, None]
    return torch.ones(len(next(v for v in inputs.values() if isinstance(v, list))), 1).bool()


def _pairs(inputs: Mapping[str, Any], count: int) -> Tensor:
    """Without groups, pairs are the two halves of a batch of scores; otherwise all is one group."""
    if "scores" in inputs:
        return torch.arange(count) % (count // 2)
    return torch.zeros(count, dtype=torch.long)


PREFERENCES = frozenset(
    {"chosen_logp", "rejected_logp", "ref_chosen_logp", "ref_rejected_logp", "loss"}
)


def preference_batch(inputs: Mapping[str, Any]) -> Batch:
    """Pairs of one-step trajectories whose log-probability is the whole answer's."""
    count = len(inputs["chosen_logp"])
    row = torch.arange(2 * count)
    both = [
        torch.tensor(inputs[f"{ref}chosen_logp"] + inputs[f"{ref}rejected_logp"], dtype=FLOAT)
        for ref in ("", "ref_")
    ]
    reward = (row < count).double()
    columns = {"logp": both[0], "ref.base": both[1], "reward": reward}
    return Batch(columns, {"traj": row, "seq": row, "group": row % count})


def padded(x: Tensor, mask: Tensor) -> Tensor:
    """Step values back in padded rows, zeros elsewhere."""
    out = torch.zeros(mask.shape, dtype=x.dtype)
    out[mask] = x
    return out
