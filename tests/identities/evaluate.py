"""A whole recipe on columns that are written out: its loss, and the gradient of every live one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.recipe import Recipe
from anypo.engine.collect import credit, shape
from anypo.engine.problem import weigh
from tests.identities.small import steps


def evaluate(recipe: Recipe, batch: Batch) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients `[N]` of the first objective, 0 where a step has no weight.

    The batch holds the rewards (or the advantage), and the live columns by their names.
    """
    recipe = recipe.at(0)
    batch = batch if "advantage" in batch else credit(recipe, shape(recipe, batch))
    objective = recipe.objectives[0]
    batch = weigh(objective, batch.with_({"place": torch.arange(len(batch))}))
    leaves = {c: batch[c].clone().requires_grad_() for c in sorted(objective.live)}
    loss = objective.loss(batch.with_(leaves))
    grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return float(loss.detach()), {
        name: torch.zeros(len(batch)).double() if grad is None else grad
        for name, grad in zip(leaves, grads, strict=True)
    }


def scene(
    lengths: Sequence[int] = (2, 3, 1, 2), groups: Sequence[int] = (0, 0, 1, 1), **given: Any
) -> Batch:
    """Two pairs of answers with probabilities of every kind; outcomes are 1, 0, 0, 1."""
    count = sum(lengths)
    names = ("logp", "logp_old", "logp_mu", "ref.base", "ref.previous", "lot")
    rng = torch.Generator().manual_seed(3)
    noise = {n: torch.rand(count, generator=rng, dtype=torch.float64) for n in names}
    columns = {n: x if n == "lot" else -2 * x for n, x in noise.items()}
    outcomes = [1.0, 0.0, 0.0, 1.0] * len(lengths)
    reward = [x for n, r in zip(lengths, outcomes) for x in [0.0] * (n - 1) + [r]]
    return steps(lengths, groups, **{**columns, "reward": reward, **given})


def same(recipe: Recipe, other: Recipe, batch: Batch, values: bool = True) -> None:
    """Two recipes have equal gradients of `logp`, and equal losses unless only gradients count."""
    (loss, grads), (wanted, expected) = evaluate(recipe, batch), evaluate(other, batch)
    assert expected["logp"].abs().max() > 1e-3
    torch.testing.assert_close(grads["logp"], expected["logp"], rtol=1e-11, atol=1e-13)
    assert not values or abs(loss - wanted) < 1e-12
