"""Collecting a batch: requests until the sampling piece has enough, rewards, credit."""

from __future__ import annotations

from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.engine.backend import Backend
from anypo.engine.columns import add_frozen
from anypo.engine.metrics import batch_metrics
from anypo.engine.state import State

MOST_REQUESTS = 1000


def collect(recipe: Recipe, backend: Backend, state: State) -> tuple[Batch, dict[str, Any]]:
    """The batch of one iteration, and what was asked for, dropped and kept."""
    batch, sampled = Batch.empty(), Batch.empty()
    rounds, asked, unscored = 0, 0, 0
    settings = state.settings
    wanted = Request(
        prompts=settings.prompts,
        horizon=settings.horizon,
        temperature=settings.temperature,
        seed=settings.seed,
        version=state.step,
    )
    while request := recipe.sampling.request(batch, wanted, rounds):
        if rounds >= MOST_REQUESTS:
            raise UsageError(
                f"sampling asked {rounds} times and still wants more: bound its rounds"
            )
        request = Request(**{**vars(request), "start": state.cursor})
        new = backend.rollout(request, state)
        state.cursor += request.prompts
        rounds, asked = rounds + 1, asked + request.prompts * request.samples
        state.tokens += len(new)
        new, gone = drop_unscored(new)
        unscored += gone
        new = shape(recipe, add_frozen(new, recipe.early_needs, state, backend))
        sampled = sampled + new
        batch = recipe.sampling.keep(batch + new)
    kept = batch.count("traj") if len(batch) else 0
    facts = {"sampled": asked, "kept": kept, "unscored": unscored, "requests": rounds}
    return batch, facts | batch_metrics(sampled)


def drop_unscored(batch: Batch) -> tuple[Batch, int]:
    """The batch without trajectories that could not be scored (NaN), and how many those were."""
    if not len(batch):
        return batch, 0
    outcome = batch.sum(batch["reward"], within="traj")
    kept = batch.take(~outcome.isnan())
    return kept, batch.count("traj") - (kept.count("traj") if len(kept) else 0)


def shape(recipe: Recipe, batch: Batch) -> Batch:
    """Axis A: the task's reward is kept as `score`, the shaped one is `reward`."""
    batch = batch.with_({"score": batch["reward"]}) if len(batch) else batch
    for piece in recipe.reward if len(batch) else ():
        batch = batch.with_({"reward": piece(batch)})
    return batch


def credit(recipe: Recipe, batch: Batch) -> Batch:
    """Axis C, without gradient: the advantage, and a critic's target where there is one."""
    if not len(batch):
        return batch
    with torch.no_grad():
        advantage = recipe.advantage(batch)
        targets = recipe.advantage.targets(batch, advantage)
    if not bool(torch.isfinite(advantage).all()):
        raise UsageError("the advantage is not finite: a reward or a value is inf or NaN")
    return batch.with_({"advantage": advantage, **targets})
