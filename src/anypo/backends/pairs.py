"""Measuring a recipe on pairs: how often it prefers the answer that was preferred."""

from __future__ import annotations

from typing import Any

from anypo.core.batch import Batch
from anypo.engine.collect import credit, shape
from anypo.engine.columns import add_frozen, cuts, gather
from anypo.engine.pairs import compares, margins
from anypo.engine.state import State
from anypo.rollout import dataset


class _Alone:
    """A backend of one rank, on which columns are computed."""

    rank, world = 0, 1

    def sum_(self, tensors: list[Any]) -> None:
        """Nothing to add."""


def preferences(task: Any, rows: list[Any], state: State) -> dict[str, Any]:
    """In how many pairs the preferred answer scores higher, of how many, and by how much.

    `accuracy` is their share (a pair that is a tie to the policy is not told apart, and counts as
    wrong), `margin` the mean of the difference. Empty for recipes that give answers no score which
    lasts longer than an update.
    """
    recipe = state.recipe.at(state.step)
    objective = recipe.objectives[0]
    batch = dataset.shown(state.policy, task, rows, range(len(rows)))
    if not (compares(objective) and len(batch)):
        return {}
    gaps = margins(objective, _scored(batch, state))
    right = int((gaps > 0).sum())
    found = {"correct": right, "total": len(gaps), "accuracy": right / max(len(gaps), 1)}
    return {**found, "margin": float(gaps.mean())} if len(gaps) else {}


def _scored(batch: Batch, state: State) -> Batch:
    """The batch with its advantages and the columns that the objective reads."""
    backend: Any = _Alone()
    recipe = state.recipe.at(state.step)
    batch = shape(recipe, add_frozen(batch, recipe.early_needs, state, backend), state.pieces)
    batch = credit(recipe, add_frozen(batch, recipe.frozen_needs, state, backend))
    parts = cuts(batch, "traj", state.policy.costs(batch), state.settings.token_budget)
    return batch.with_(gather(batch, recipe.objectives[0].live, parts, state, backend))
