"""The training loop: collect, credit, update, log; the same for every recipe."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.core.rng import generator
from anypo.engine import checkpoint
from anypo.engine.backend import Backend
from anypo.engine.callbacks import Callback
from anypo.engine.collect import collect, credit, thinned
from anypo.engine.columns import add_frozen, add_watched
from anypo.engine.limits import reached
from anypo.engine.log import Log
from anypo.engine.movement import Movement
from anypo.engine.problem import Problem
from anypo.engine.profile import Profiler, nobody
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.engine.validate import validate

NOBODY = Callback()


def train(
    recipe: Recipe,
    task: Any,
    policy: Any,
    backend: Backend,
    settings: Settings,
    out: Path,
    callback: Callback = NOBODY,
    profiler: Profiler = nobody,
) -> State:
    """Run until `settings.steps` iterations are done; continue where `out` has a checkpoint.

    It ends earlier where a limit of the settings is reached or a callback wants it, and `ended` of
    the returned state says why. What the `profiler` says of an iteration joins its metrics.
    """
    validate(recipe, task, policy, settings)
    state = State.start(recipe, policy, settings)
    checkpoint.load(state, out)
    policy.publish()
    log, saved = Log(out, state.step), time.monotonic()
    state.ended = reached(settings, log.rows)
    while state.step < settings.steps and not state.ended:
        started, moved = time.monotonic(), Movement(policy)
        r = recipe.at(state.step)  # schedules and phases are resolved here, only here
        state.recipe = r
        state.refresh(recipe.refreshes(state.step))
        with checkpoint.rescued(state, out):
            batch, facts = collect(r, backend, state)  # B, A
        facts["time/collect"] = time.monotonic() - started
        # With one visit per batch, logp_old is logp at that visit: the ratio is 1 by construction.
        once = r.update.visits == 1 and not r.wants_old
        frozen = r.frozen_needs - ({"logp_old"} if once else set())
        batch = add_frozen(batch, frozen, state, backend)  # H
        batch = credit(r, batch)  # C
        batch, facts["kept"] = thinned(r, batch)  # B
        pull = torch.zeros(len(batch))
        batch = batch.with_({"row": torch.arange(len(batch))})
        rng = generator(settings.seed, "minibatches", state.step)
        for mini in r.update.minibatches(batch, r.couples, rng) if len(batch) else ():  # I
            for i, objective in enumerate(r.objectives):  # D, E, F, G
                problem = Problem(objective, mini, state, backend, i, pull)
                facts = log.fold(facts, r.update.step(problem, state.optimizers[i], state.lr))
        policy.publish()
        state.observe(add_watched(batch, state, backend))
        state.step += 1
        state.idle = 0 if facts.get("grad_norm", 0.0) > 0 else state.idle + 1
        facts |= {"step_time": time.monotonic() - started, **moved.measure()}
        last = state.step >= settings.steps
        if settings.eval_every and (state.step % settings.eval_every == 0) and not last:
            facts |= backend.evaluate(state)
        facts |= profiler(state, facts, log.rows)
        row = log.write(state, facts)
        if settings.record_every and state.step % settings.record_every == 0:
            backend.sum_([pull])
            backend.record(batch.with_({"gradient": pull}), state, out)
        dead = log.verdict(state, facts)
        state.ended = callback.on_iteration(row) or reached(settings, log.rows)
        over = last or dead or state.ended
        if over or settings.due(state.step, time.monotonic() - saved):
            callback.on_checkpoint(checkpoint.save(state, out))
            saved = time.monotonic()
        if dead:
            raise UsageError(dead)
    return state
