"""How likely a policy finds answers that are given: demonstrations, and pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from anypo.api.scores import Side
from anypo.core.batch import Batch
from anypo.engine.columns import cuts
from anypo.engine.measure import Measure, ratio, share
from anypo.rollout import dataset

TOKENS = 8192
"""Tokens of one forward pass."""


def demonstrations(policy: Any, task: Any, how: Any) -> dict[str, Side]:
    """`nll`, `perplexity` and `mean_token_accuracy` (TRL's name) over the tokens of each side."""
    found = {}
    for name, batch in _sides(policy, task, how):
        logp, top, counts = _answers(policy, batch)
        table = batch.table("traj")
        rows = [
            {"prompt": p, "completion": c, "tokens": n, "nll": -x / n, "mean_token_accuracy": t / n}
            for p, c, n, x, t in zip(table["prompt_text"], table["completion"], counts, logp, top)
        ]
        nll = ratio([-x for x in logp], counts)
        bounds = [math.exp(x) if x < 700 else math.inf for x in (nll.value, nll.low, nll.high)]
        likeliest = ratio(top, counts)
        low, high = max(0.0, likeliest.low), min(1.0, likeliest.high)
        measures = {"nll": nll, "perplexity": Measure(*bounds, nll.count)}
        if "top" in policy.offers:
            right = Measure(likeliest.value, low, high, likeliest.count)
            measures["mean_token_accuracy"] = right
        found[name] = Side(measures, rows)
    return found


def pairs(policy: Any, task: Any, how: Any) -> dict[str, Side]:
    """In how many pairs the preferred answer is the likelier one; a tie counts as wrong.

    `pair_accuracy` compares log-probabilities of whole answers, `pair_accuracy/token` their means
    over tokens, which long answers do not lose by their length. No reference is needed: this is
    the policy's own taste, not the margin that a recipe such as DPO trains.
    """
    found = {}
    for name, batch in _sides(policy, task, how):
        logp, _, counts = _answers(policy, batch)
        table = batch.table("traj")
        texts, prompts = table["completion"], table["prompt_text"]
        rows = []
        for i in range(0, len(logp), 2):  # the preferred answer of a pair comes first
            apart = logp[i] - logp[i + 1]
            each = logp[i] / counts[i] - logp[i + 1] / counts[i + 1]
            said = {"chosen": texts[i], "rejected": texts[i + 1], "margin": apart}
            row = {"prompt": prompts[i], **said, "pair_accuracy": float(apart > 0)}
            rows.append(row | {"pair_accuracy/token": float(each > 0)})
        names = ("pair_accuracy", "pair_accuracy/token")
        found[name] = Side({n: share([row[n] for row in rows]) for n in names}, rows)
    return found


def _sides(policy: Any, task: Any, how: Any) -> Iterator[tuple[str, Batch]]:
    """The given answers of each side; rows that are too long are left out, as in training."""
    for name, rows in (("seen", task.train), ("held_out", task.held_out)):
        chosen = list(rows)[: how.n]
        batch = dataset.shown(policy, task, chosen, range(len(chosen)))
        if len(batch):
            how.tell(name, 0, batch.count("traj"))
            yield name, batch
            how.tell(name, batch.count("traj"), batch.count("traj"))


def _answers(policy: Any, batch: Batch) -> tuple[list[float], list[float], list[int]]:
    """Of each answer: its log-probability, how many tokens are the likeliest, and how many are."""
    needs = frozenset({"logp"} | ({"top"} & policy.offers))
    columns: dict[str, Tensor] = {name: torch.zeros(len(batch)).double() for name in needs}
    for part in cuts(batch, "traj", policy.costs(batch), TOKENS):
        with torch.no_grad():
            found = policy.columns(batch.take(part), needs, {})
        for name in needs:
            columns[name][part] = found[name].double().cpu()
    traj = torch.unique(batch.id("traj"), return_inverse=True)[1]
    sums = {name: torch.zeros(int(traj.max()) + 1).double() for name in needs}
    for name, x in columns.items():
        sums[name].index_add_(0, traj, x)
    top = sums.get("top", torch.zeros_like(sums["logp"]))
    return sums["logp"].tolist(), top.tolist(), torch.bincount(traj).tolist()
