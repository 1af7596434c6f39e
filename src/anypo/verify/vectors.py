"""Reading a vector file's case: padded rows to a `Batch`, field names to the fields of a recipe.

Nothing here calculates: rows are flattened, names are translated, and the recipe does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.dump import rows
from anypo.core.neutral import Mean
from anypo.core.recipe import AXES, Recipe

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
    "logp": ("logp",),
    "logp_old": ("logp_old", "ref.ewma"),
    "logp_ref": ("ref.base",),
    "logp_mu": ("logp_mu",),
    "dpo_logp": ("ref.dpo",),
    "proposal_logp": ("logp_mu",),
    "target_log_score": ("ref.base",),
    "advantages": ("advantage",),
    "reward_tokens": ("advantage",),
    "target_adv": ("target",),
    "token_rewards": ("reward",),
    "values": ("value", "ref.base.value"),
    "old_values": ("value_old",),
    "returns": ("return",),
    "entropy": ("entropy", "entropy_old"),
    "reward_model": ("reward_model",),
}
"""Padded inputs, one number per step → the columns that hold it."""

ROWS = {
    "log_z": "log_z",
    "v_star": "v_star",
    "ref_rewards": "reference",
    "greedy_rewards": "greedy",
    "score_norm_sq": "score_norm",
    "seq_entropy": "entropy_old",
    "target": "length_target",
    "mean_prob": "mean_prob",
    "lengths": "length",
}
"""Inputs with one number per row → the column that holds it on every step of the row."""

LAST = {"rewards": "reward", "scores": "reward", "labels": "reward", "rm_reward": "reward"}
LAST |= {"correct": "reward", "metric": "score"}
"""Inputs with one number per row that stand on the row's last step."""

OUTCOMES = frozenset({*LAST, "target_log_score"})
"""Inputs of which the recipe makes its advantage; a target's score is a reference's, unrewarded."""

FACTS = {
    "process_scores": "process",
    "flawed": "flawed",
    "cluster": "cluster",
    "think_end": "think_end",
    "think_len": "think_length",
    "valid_len": "valid_length",
    "hits": "hits",
    "block_rewards": "parts",
    "margin": "margin",
    "step_rewards": "steps",
}
"""Inputs that a reward reports of a trajectory → the name under which pieces read them."""

NAMES = {
    "clip_low": ("low",),
    "clip_high": ("high",),
    "log_clip_low": ("low",),
    "log_clip_high": ("high",),
    "clip": ("low", "high"),
    "dual_clip": ("dual",),
    "low_start": ("low",),
    "low_step": ("increment",),
    "high_start": ("high",),
    "high_step": ("increment",),
    "label_smoothing": ("smoothing",),
    "kl": ("form",),
    "estimator": ("form",),
    "value_clip": ("clip",),
    "scale_by_std": ("scale",),
    "agg": ("aggregate",),
    "aggregation": ("aggregate",),
    "norm_const": ("length",),
    "max_len": ("reward.limit",),
    "buffer_len": ("buffer",),
    "penalty_factor": ("factor",),
    "kl_coef": ("beta",),
    "lam_actor": ("lam",),
    "lam_critic": ("lam_value",),
    "b1": ("reward.scale", "reward.base"),
    "b2": ("reward.beta", "reward.bonus"),
    "a1": ("reward.base",),
    "a2": ("reward.bonus",),
    "A": ("bottom",),
    "B": ("top",),
    "x0": ("middle",),
    "k": ("k", "steepness"),
    "conflict_weight": ("boost",),
    "w_mix": ("mix",),
    "norm_by_std": ("standardise",),
    "natural_baseline": ("natural",),
    "weight": ("reward.weight",),
}
"""Hyper-parameters → fields, where those are called otherwise; `axis.field` names the axis too."""

STATE = frozenset({"q_low", "q_high"})
"""Inputs that are named state: one number, a column."""

UNBOUNDED = 1e9
"""The budget of a case that names none."""

SHAPES = frozenset({"mask", "lengths", "group", "note", "notes", "pad_id"})
"""Inputs that shape the batch, or say something to a reader."""

SAME = frozenset({"grad_through_mean", "alpha_mode", "discount", "cluster_prob", "chosen_len"})
SAME |= frozenset({"rejected_len", "win_prob", "token_ids", "tokens", "loss"})
"""What changes no number (centred residuals sum to zero), says what the method is anyway, or is
read where a batch is made."""

ORDER = ("surrogate", "regularize", "ratio", "aggregate", "advantage", "reward")
"""Axes in the order in which a hyper-parameter's field is looked for."""


VARIANTS = {"advantages_verl_nonzero_reward_alpha": {"count": "rewards"}}
"""Results that a file has of another form of its method → that form's arguments."""

WORDS = {"ipo_mean": {"mean": True}, "ipo_sum": {"mean": False}, "sppo": {"soft": True}}
"""Names that files give to a variant of a loss → arguments of the method."""


def data(name: str, value: Any) -> bool:
    """Whether an input is data of the batch, and no hyper-parameter."""
    if name in (*SHAPES, *SAME, *STATE, *PREFERENCES):
        return True
    return isinstance(value, list) and name in (*COLUMNS, *ROWS, *LAST, *FACTS, *IDS)


def unknown(inputs: Mapping[str, Any], recipe: Recipe) -> list[str]:
    """Hyper-parameters for which the recipe has no field: a case with some is not covered."""
    return sorted(k for k, v in inputs.items() if not data(k, v) and not paths_of(k, recipe))


def paths_of(name: str, recipe: Recipe) -> list[str]:
    """The recipe's paths for a hyper-parameter: all of the first axis that has such a field."""
    fields = NAMES.get(name, (name,))
    if fields == ("aggregate",):
        return ["aggregate"]
    split = [p.split(".") for p in rows(recipe) if p not in AXES]
    found = [".".join(p) for p in split if {p[-1], f"{p[0]}.{p[-1]}"} & {*fields}]
    for axis in ORDER:
        if mine := [p for p in found if p.split(".")[0] == axis]:
            return mine
    return []


def configure(recipe: Recipe, inputs: Mapping[str, Any]) -> Recipe:
    """The recipe with the case's hyper-parameters."""
    if "values" in inputs and "returns" in inputs:  # a critic's loss alone has no coefficient
        recipe = recipe.set("regularize.0.coef", 1.0)
    for name, value in inputs.items():
        for path in () if data(name, value) else paths_of(name, recipe):
            if path == "aggregate" and value not in AGGREGATES:
                continue
            recipe = recipe.set(path, _translated(name, value))
    return recipe


def _translated(name: str, value: Any) -> Any:
    """A hyper-parameter's value in our words."""
    if name in ("agg", "aggregation"):
        return AGGREGATES[value]
    if name == "scale_by_std":
        return "std" if value else "off"
    return math.inf if value is None else value


def batch_of(inputs: Mapping[str, Any]) -> tuple[Batch, Tensor]:
    """The case's batch, and the mask `[B, T]` that says where its steps stand."""
    inputs = _by_rank(inputs)
    mask = _mask(inputs)
    if pairs := _in_pairs(inputs):
        return batch_of(pairs)[0], mask
    row, place = torch.nonzero(mask).unbind(1)
    count = len(mask)
    group = torch.as_tensor(inputs.get("group", _pairs(inputs, count)))
    ids = {"traj": row, "seq": row, "group": group[row], "prompt": group[row], "position": place}
    batch = Batch({}, {**ids, **_ids(inputs, mask)})
    columns = {"lot": torch.arange(len(row), dtype=FLOAT) / len(row)}
    for name in (n for n in COLUMNS if n in inputs):
        values = torch.as_tensor(inputs[name], dtype=FLOAT)
        values = values if values.dim() == 2 else values[:, None]
        columns |= dict.fromkeys(COLUMNS[name], values[mask])
    columns |= {
        column: torch.as_tensor(inputs[name], dtype=FLOAT)[row]
        for name, column in ROWS.items()
        if isinstance(inputs.get(name), list)
    }
    columns |= {
        name: torch.full((len(row),), float(inputs[name]), dtype=FLOAT)
        for name in sorted(STATE & {*inputs})
    }
    last = batch.last("traj")
    for name in (n for n in LAST if n in inputs and LAST[n] not in columns):
        outcome = torch.as_tensor(inputs[name], dtype=FLOAT)
        on_last = torch.where(last, outcome[row], 0.0) if outcome.dim() == 1 else outcome[mask]
        columns[LAST[name]] = on_last
    table = {FACTS[name]: inputs[name] for name in FACTS if name in inputs}
    if "block_rewards" in inputs:  # written block by block
        table["parts"] = list(zip(*inputs["block_rewards"], strict=True))
    table["horizon"] = torch.full((count,), UNBOUNDED)
    written = inputs.get("tokens", inputs.get("token_ids"))
    network = {"tokens": [torch.as_tensor(x) for x in written]} if written else {}
    return replace(batch, columns=columns, tables={"traj": table}, inputs=network), mask


IDS = frozenset({"rank_id", "segment", "stratum", "block_mask", "bundle", "question"})
IDS |= frozenset({"rank_advantages"})
"""Inputs that say which unit a step belongs to, and what is known of such a unit."""


def _by_rank(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Advantages of a list's items, each on the steps of its item; steps of none are no steps."""
    if "rank_advantages" not in inputs:
        return inputs
    rank, items = torch.as_tensor(inputs["rank_id"]), torch.tensor(inputs["rank_advantages"])
    inside = (rank >= 0) & (rank < items.shape[1])
    of_step = torch.tensor(inputs["rank_advantages"], dtype=FLOAT).gather(1, rank * inside)
    mask = torch.as_tensor(inputs["mask"]).bool() & inside
    rest = {k: x for k, x in inputs.items() if k != "rank_advantages"}
    return {**rest, "advantages": of_step.tolist(), "mask": mask.tolist()}


def _ids(inputs: Mapping[str, Any], mask: Tensor) -> dict[str, Tensor]:
    """Ids beyond trajectory and group: ranks of a list, bundles of questions."""
    found: dict[str, Tensor] = {}
    row = torch.nonzero(mask)[:, 0]
    if "rank_id" in inputs:
        stage = torch.as_tensor(inputs["rank_id"])[mask]
        found |= {"stage": stage, "segment": row * (int(stage.max()) + 2) + stage + 1}
    if "hits" in inputs:  # every step is an item of the list
        found |= {"stage": torch.nonzero(mask)[:, 1], "segment": torch.arange(len(row))}
    if "block_mask" in inputs:
        stage = torch.as_tensor(inputs["block_mask"]).long().argmax(0)[mask]
        found |= {"stage": stage, "segment": row * (int(stage.max()) + 1) + stage}
        found["stratum"] = torch.as_tensor(inputs["stratum"])[stage, row]
    for name in ("bundle", "question"):
        if name in inputs:
            found[name] = torch.as_tensor(inputs[name])[row]
    return found


def _in_pairs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A table of whole answers, two to a row, as one answer to a row; empty for other cases."""
    if "mask" in inputs or torch.as_tensor(inputs.get("logp", 0)).dim() != 2:
        return {}
    flat = {k: [x for pair in v for x in pair] for k, v in inputs.items() if isinstance(v, list)}
    return {**inputs, **flat, "group": [i for i, pair in enumerate(inputs["logp"]) for _ in pair]}


def _mask(inputs: Mapping[str, Any]) -> Tensor:
    if "mask" in inputs:
        return torch.as_tensor(inputs["mask"]).bool()
    if "lengths" in inputs:
        lengths = torch.as_tensor(inputs["lengths"])
        return torch.arange(int(lengths.max())) < lengths[:, None]
    if "tokens" in inputs:
        lengths = torch.tensor([len(row) for row in inputs["tokens"]])
        return torch.arange(int(lengths.max())) < lengths[:, None]
    shape = torch.as_tensor(next(v for v in inputs.values() if isinstance(v, list))).shape
    return torch.ones(shape if len(shape) == 2 else (shape[0], 1)).bool()


def _pairs(inputs: Mapping[str, Any], count: int) -> Tensor:
    """Without groups, pairs are the two halves of a batch of scores; otherwise all is one group."""
    if "scores" in inputs and count % 2 == 0:
        return torch.arange(count) % (count // 2)
    return torch.zeros(count, dtype=torch.long)


PREFERENCES = frozenset(
    f"{who}{side}_logp" for who in ("", "ref_", "prev_") for side in ("chosen", "rejected")
)
ANCHORS = {"": "logp", "ref_": "ref.base", "prev_": "ref.previous"}


def preference_batch(inputs: Mapping[str, Any]) -> Batch:
    """Pairs of trajectories whose summed log-probability is the whole answer's.

    An answer is one step, or as many as its length says, of which the first holds everything.
    """
    count = len(inputs["chosen_logp"])
    ones = [1.0] * count
    lengths = torch.tensor(inputs.get("chosen_len", ones) + inputs.get("rejected_len", ones)).long()
    row = torch.arange(2 * count).repeat_interleave(lengths)
    first = torch.ones_like(row).bool()
    first[1:] = row[1:] != row[:-1]
    columns = {
        column: torch.zeros(len(row), dtype=FLOAT).index_put((first,), _both(inputs, who))
        for who, column in ANCHORS.items()
        if f"{who}chosen_logp" in inputs
    }
    probable = inputs.get("win_prob", ones) if inputs["loss"] == "sppo" else ones
    win = torch.tensor(probable, dtype=FLOAT)
    reward = torch.zeros(len(row), dtype=FLOAT)
    reward[first] = torch.cat([win, 1 - win])
    return Batch({**columns, "reward": reward}, {"traj": row, "seq": row, "group": row % count})


def _both(inputs: Mapping[str, Any], who: str) -> Tensor:
    return torch.tensor(inputs[f"{who}chosen_logp"] + inputs[f"{who}rejected_logp"], dtype=FLOAT)


def rectangle(x: Any) -> Tensor:
    """Numbers of a file as a tensor; rows of unequal length are filled up with zeros."""
    ragged = isinstance(x, list) and len({len(row) for row in x if isinstance(row, list)}) > 1
    longest = max(len(row) for row in x) if ragged else 0
    whole = [[*row, *[0] * (longest - len(row))] for row in x] if ragged else x
    return torch.as_tensor(whole, dtype=FLOAT)


def padded(x: Tensor, mask: Tensor) -> Tensor:
    """Step values back in padded rows, zeros elsewhere."""
    out = torch.zeros(mask.shape, dtype=x.dtype)
    out[mask] = x
    return out
