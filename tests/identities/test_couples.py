"""What a piece declares to couple is what its gradient sees: no less, and no more."""

from __future__ import annotations

import pytest
import torch

import anypo.recipes
from anypo.core import discover
from anypo.core.batch import Batch
from anypo.core.piece import LEVELS, widest
from anypo.core.recipe import Objective, Recipe
from anypo.engine import dry

METHODS = discover.methods(anypo.recipes)
CONDITIONAL = frozenset({"bapo", "clip_cov", "kl_cov", "rank_grpo"})
"""Methods whose gradient sees far only where a threshold is crossed, or whose unit is no longer
than a smaller one in these batches: here it need not show."""


def seen(objective: Objective, batch: Batch, step: int, move: float = 0.37) -> str:
    """How far from a step a gradient changes when that step's live columns move."""
    _, before = dry.gradients(objective, batch)
    place = batch.with_({"weight": objective.aggregate(batch)})["weight"] != 0
    moved = {}
    for name in objective.live:
        column = batch[f"live {name}"].clone()
        column[step] += move
        moved[f"live {name}"] = column
    _, after = dry.gradients(objective, batch.with_(moved))
    changed = torch.zeros(len(batch), dtype=torch.bool)
    for name, grad in before.items():
        other = after.get(name, torch.zeros_like(grad))
        different = ~torch.isclose(grad, other, rtol=1e-9, atol=1e-14, equal_nan=True)
        changed[place] |= different.flatten(1).any(1) if different.dim() > 1 else different
    levels = [level for level in LEVELS if bool(changed.any())]
    for level in levels:
        ids = batch.id(level)
        if bool((ids[changed] == ids[step]).all()):
            return level
    return "step"


def widest_seen(recipe: Recipe, index: int) -> str:
    """The widest of some steps and scenes; larger moves, which cross thresholds, where it is less
    than what is declared."""
    objective, found = recipe.objectives[index], []
    for move in (0.37, 3.0, -3.0):
        for scene in (0, 1, 3, 30):
            batch = dry.collected(recipe, scene)
            places = (0, len(batch) // 2, len(batch) - 1)
            found += [seen(objective, batch, step, move) for step in places]
        if widest(found) == objective.couples:
            break
    return widest(found)


@pytest.mark.parametrize("name", METHODS)
def test_a_gradient_sees_as_far_as_is_declared(name):
    recipe = METHODS[name]().at(0)
    for index, objective in enumerate(recipe.objectives):
        found = widest_seen(recipe, index)
        far, declared = LEVELS.index(found), LEVELS.index(objective.couples)
        assert far <= declared, f"{found} seen, {objective.couples} declared: a wrong cut"
        assert far == declared or name in CONDITIONAL, (
            f"only {found} seen, {objective.couples} declared: declare less, or name the method in "
            "CONDITIONAL"
        )
