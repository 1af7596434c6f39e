"""The local backend: rollouts, evaluation and records in this process."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anypo.backends.parquet import write_rows
from anypo.core.batch import Batch
from anypo.core.request import Request
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
        """Greedy exact-answer accuracy on held-out rows (and seen ones); empty for other kinds."""
        if self.task.kind != "language":
            return {}
        sides = {"held_out": self.task.held_out} | ({"seen": self.task.train} if seen else {})
        horizon = state.settings.horizon or self.task.horizon
        out: dict[str, Any] = {}
        for side, rows in sides.items():
            rows = list(rows)[: state.settings.eval_size]
            if not rows:
                continue
            correct = language.correct(state.policy, self.task, rows, horizon)
            out |= {f"{side}/correct": sum(correct), f"{side}/total": len(correct)}
            out[f"{side}/accuracy"] = sum(correct) / len(correct)
        return out

    def record(self, batch: Batch, state: State, out: Path) -> None:
        """One parquet file of completions per recorded iteration, as TRL lays them out."""
        table = batch.table("traj")
        if "completion" not in table or not len(batch):
            return
        traj, count = segments.dense(batch.id("traj"))
        first = segments.first_index(traj, count)
        numbers = {
            name: _plain(batch.sum(batch[name], within="traj")[first])
            for name in ("score", "reward")
            if name in batch
        }
        numbers["advantage"] = _plain(batch["advantage"][first])
        group = batch.id("group")[first].tolist()
        rows = [
            {
                "step": state.step,
                "prompt": table["prompt_text"][k],
                "completion": table["completion"][k],
                **{name: values[k] for name, values in numbers.items()},
                "group": group[k],
            }
            for k in range(count)
        ]
        write_rows(out / "completions" / f"step_{state.step:05d}.parquet", rows)

    def sum_(self, tensors: list[Tensor]) -> None:
        """Nothing to add on one rank."""


def _plain(x: Tensor) -> list[float]:
    return [v if math.isfinite(v) else math.nan for v in x.double().tolist()]
