"""The local backend: rollouts, evaluation and records in this process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anypo.backends.pairs import preferences
from anypo.backends.parquet import write_rows
from anypo.core.batch import Batch
from anypo.core.clock import listening, span
from anypo.core.request import Request
from anypo.engine.columns import cuts
from anypo.engine.state import State
from anypo.math import segments
from anypo.rollout import control, dataset, generator, language

ROLLOUTS: dict[str, Callable[[Request, Any, Any], Batch]] = {
    "language": language.rollout,
    "preference": dataset.rollout,
    "demonstration": dataset.rollout,
    "control": control.rollout,
    "generator": generator.rollout,
}
"""Kind of a task → how its trajectories are made."""


@dataclass
class Local:
    """A backend in one process: `task` is what is solved, `evaluator` how it is scored greedily."""

    task: Any
    rank: int = 0
    world: int = 1
    texts: dict[int, str] = field(default_factory=dict)

    def rollout(self, request: Request, state: State) -> Batch:
        """Trajectories of the current policy, with the budget they had in the table of `traj`."""
        request = replace(request, horizon=request.horizon or getattr(self.task, "horizon", 1))
        batch = ROLLOUTS[self.task.kind](request, state.policy, self.task)
        if not len(batch):
            return batch
        table = dict(batch.table("traj"))
        table["horizon"] = torch.full((batch.count("traj"),), request.horizon)
        return replace(batch, tables={**batch.tables, "traj": table})

    def evaluate(self, state: State, seen: bool = False) -> dict[str, Any]:
        """Scores on held-out rows (and seen ones); empty for kinds that have none.

        Questions: greedy exact-answer accuracy. Demonstrations: how likely they are. Pairs: how
        often the preferred answer scores higher.
        """
        if self.task.kind not in MEASURED:
            return {}
        with span("evaluation"), listening(None):  # one span, whatever the policy does in it
            return self._evaluate(state, seen)

    def _evaluate(self, state: State, seen: bool) -> dict[str, Any]:
        sides = {"held_out": self.task.held_out} | ({"seen": self.task.train} if seen else {})
        measure = MEASURED[self.task.kind]
        out: dict[str, Any] = {}
        for side, rows in sides.items():
            if rows := list(rows)[: state.settings.eval_size]:
                found = measure(self.task, rows, state)
                out |= {f"{side}/{name}": x for name, x in found.items()}
        return out

    def record(self, batch: Batch, state: State, out: Path) -> None:
        """One parquet file of completions per recorded iteration, as TRL lays them out."""
        table = batch.table("traj")
        if "completion" not in table or not len(batch):
            return
        with span("records"):
            rows = records(batch, state.step, self._texts(batch, state.policy))
            write_rows(out / "completions" / f"step_{state.step:05d}.parquet", rows)

    def _texts(self, batch: Batch, policy: Any) -> list[str]:
        """What the token of every step says, each token decoded once in a run."""
        tokens, seq, place = batch.inputs["tokens"], batch.ids["seq"], batch.ids["position"]
        ids = [int(tokens[s][p]) for s, p in zip(seq.tolist(), place.tolist())]
        for k in {*ids} - {*self.texts}:
            self.texts[k] = policy.decode(torch.tensor([k]))
        return [self.texts[k] for k in ids]

    def sum_(self, tensors: list[Tensor]) -> None:
        """Nothing to add on one rank."""


def accuracy(task: Any, rows: list[Any], state: State) -> dict[str, Any]:
    """How many greedy answers are exact, of how many."""
    correct = language.correct(state.policy, task, rows, state.settings.horizon or task.horizon)
    share = sum(correct) / len(correct)
    return {"correct": sum(correct), "total": len(correct), "accuracy": share}


def likelihood(task: Any, rows: list[Any], state: State) -> dict[str, Any]:
    """How likely given answers are, over all their tokens.

    `nll` is the mean of `−logp`, `perplexity` its exponential, `mean_token_accuracy` the share of
    tokens that are the likeliest in their place, as TRL calls it.
    """
    policy = state.policy
    batch = dataset.shown(policy, task, rows, range(len(rows)))
    if not len(batch):
        return {}
    needs = frozenset({"logp"} | ({"top"} & policy.offers))
    found: dict[str, list[Tensor]] = {name: [] for name in needs}
    for part in cuts(batch, "traj", policy.costs(batch), state.settings.token_budget):
        with torch.no_grad():
            columns = policy.columns(batch.take(part), needs, {})
        for name in needs:
            found[name].append(columns[name].double())
    nll = -float(torch.cat(found["logp"]).mean())
    out = {"nll": nll, "perplexity": math.exp(min(nll, 700.0))}
    if "top" in found:
        out["mean_token_accuracy"] = float(torch.cat(found["top"]).mean())
    return {**out, "tokens": len(batch), "rows": batch.count("group")}


MEASURED: dict[str, Callable[[Any, list[Any], State], dict[str, Any]]] = {
    "language": accuracy,
    "demonstration": likelihood,
    "preference": preferences,
}
"""Kind of a task → what an evaluation measures on some rows."""


def records(batch: Batch, step: int, texts: Sequence[str]) -> list[dict[str, Any]]:
    """One row per trajectory, under TRL's names; tokens and their pull on the weights as lists.

    `gradient` is `−∂loss/∂logp` of each token, summed over the updates of the iteration: above 0 it
    was made likelier.
    """
    traj, count = segments.dense(batch.id("traj"))
    first, table = segments.first_index(traj, count), batch.table("traj")
    shown: dict[str, list[Any]] = {
        "prompt": table["prompt_text"],
        "completion": table["completion"],
    }
    for name in ("score", "reward"):
        if name in batch:
            shown[name] = _plain(batch.sum(batch[name], within="traj")[first])
    shown |= {name: table[name] for name in table if name.startswith("rewards/")}
    shown["advantage"] = _plain(batch["advantage"][first])
    shown["group"] = batch.id("group")[first].tolist()
    shown["truncated"] = torch.as_tensor(table["truncated"]).tolist()
    order = torch.argsort(traj, stable=True)
    ends = torch.bincount(traj, minlength=count).cumsum(0).tolist()
    spans = list(zip([0, *ends], ends))
    shown["tokens"] = [[texts[n] for n in order[a:b].tolist()] for a, b in spans]
    if "gradient" in batch:
        shown["gradient"] = [_plain(batch["gradient"][order[a:b]]) for a, b in spans]
    return [{"step": step, **{k: v[n] for k, v in shown.items()}} for n in range(count)]


def _plain(x: Tensor) -> list[float]:
    return [v if math.isfinite(v) else math.nan for v in x.double().tolist()]
