"""Collecting a batch: requests until the sampling piece has enough, rewards, credit."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.clock import span
from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.core.rng import generator
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
        state=state.pieces,
    )
    while request := recipe.sampling.request(batch, wanted, rounds):
        if rounds >= MOST_REQUESTS:
            raise UsageError(
                f"sampling asked {rounds} times and still wants more: bound its rounds"
            )
        request = replace(request, start=state.cursor)
        new = rollout(recipe, request, backend, state)
        state.cursor += request.prompts
        rounds, asked = rounds + 1, asked + request.prompts * request.samples
        state.tokens += len(new)
        new, gone = drop_unscored(new)
        unscored += gone
        new = recipe.sampling.mark(new) if len(new) else new
        new = add_frozen(new, recipe.early_needs, state, backend)
        with span("rewards"):
            new = shape(recipe, draw(new, settings.seed, state.step, rounds), state.pieces)
        sampled = sampled + new
        batch = recipe.sampling.keep(batch + new)
    kept = batch.count("traj") if len(batch) else 0
    facts: dict[str, Any] = {"sampled": asked, "kept": kept, "unscored": unscored}
    facts |= {"requests": rounds, **staleness(batch, state.step)}
    return batch, facts | batch_metrics(sampled)


def staleness(batch: Batch, step: int) -> dict[str, float]:
    """How many iterations ago the steps of a batch were sampled, on average and at most."""
    if not len(batch) or "version" not in batch.ids:
        return {}
    age = step - batch.id("version").double()
    return {"staleness/mean": float(age.mean()), "staleness/max": float(age.max())}


def rollout(recipe: Recipe, request: Request, backend: Backend, state: State) -> Batch:
    """The trajectories of a request, with its tags and what the recipe's probes say of them."""
    with span("sampling"):
        return _probed(recipe, request, backend, state)


def _probed(recipe: Recipe, request: Request, backend: Backend, state: State) -> Batch:
    batch = backend.rollout(request, state)
    batch = batch.with_({k: torch.full((len(batch),), x) for k, x in request.tags.items()})
    for probe in recipe.sampling.probes if len(batch) else ():
        asked = probe.ask(request)
        with state.reference(asked.policy) if asked.policy else nullcontext():
            probed, _ = drop_unscored(backend.rollout(asked, state))
        batch = batch.with_({probe.name: probe.read(batch, probed)})
    return batch


def draw(batch: Batch, *words: Any) -> Batch:
    """The batch with the column `lot`: a uniform number per step, float64, drawn once.

    Random choices among steps go by it, so they depend on no order and on no split.
    """
    rng = generator(words[0], "lot", *words[1:])
    lot = torch.rand(len(batch), generator=rng, dtype=torch.float64)
    return batch.with_({"lot": lot})


def drop_unscored(batch: Batch) -> tuple[Batch, int]:
    """The batch without trajectories that could not be scored (NaN), and how many those were."""
    if not len(batch):
        return batch, 0
    outcome = batch.sum(batch["reward"], within="traj")
    kept = batch.take(~outcome.isnan())
    return kept, batch.count("traj") - (kept.count("traj") if len(kept) else 0)


def shape(recipe: Recipe, batch: Batch, state: Mapping[str, Any] | None = None) -> Batch:
    """Axis A: the task's reward is kept as `score`, the shaped one is `reward`.

    `state` is the named state of the recipe's pieces (default: as they start).
    """
    if not len(batch):
        return batch
    start = {k: v for p in recipe.pieces for k, v in p.init().items()}
    batch = batch.with_({"score": batch["reward"]} | stamped(batch, start | dict(state or {})))
    for piece in recipe.reward:
        batch = batch.with_({"reward": piece(batch)})
    return batch


def stamped(batch: Batch, state: Mapping[str, Any]) -> dict[str, Tensor]:
    """Named state as columns, float64 `[N]`: a number everywhere, a table by the id `prompt`.

    A table's keys are prompts as text; a prompt that it does not have gets NaN. State that is
    neither a number nor a table of numbers is for its piece alone.
    """
    columns = {}
    for name, kept in state.items():
        if isinstance(kept, (int, float)):
            columns[name] = torch.full((len(batch),), float(kept), dtype=torch.float64)
        elif isinstance(kept, Mapping) and all(isinstance(v, float) for v in kept.values()):
            values = [kept.get(str(p), float("nan")) for p in batch.id("prompt").tolist()]
            columns[name] = torch.tensor(values, dtype=torch.float64)
    return columns


def credit(recipe: Recipe, batch: Batch) -> Batch:
    """Axis C, without gradient: the advantage, and a critic's target where there is one."""
    if not len(batch):
        return batch
    with torch.no_grad(), span("credit"):
        advantage = recipe.advantage(batch)
        targets = recipe.advantage.targets(batch, advantage)
    if not bool(torch.isfinite(advantage).all()):
        raise UsageError("the advantage is not finite: a reward or a value is inf or NaN")
    return batch.with_({"advantage": advantage, **targets})


def thinned(recipe: Recipe, batch: Batch) -> tuple[Batch, int]:
    """What sampling leaves after the advantages, and how many trajectories that are."""
    batch = recipe.sampling.thin(batch) if len(batch) else batch
    return batch, batch.count("traj") if len(batch) else 0
