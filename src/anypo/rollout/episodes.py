"""Whole episodes of a controller, one from each seed, to measure it by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from anypo.core.rng import generator, key
from anypo.rollout.control import Controller, ControlTask, Environment


@dataclass
class Episode:
    """What became of an episode; `finished`: whether it ended within the task's horizon."""

    seed: int
    total: float = 0.0
    steps: int = 0
    finished: bool = False


def episodes(
    policy: Controller, task: ControlTask, count: int, *, temperature: float, seed: int = 0
) -> list[Episode]:
    """`count` first episodes, each of an environment of its own, of at most `task.horizon` steps.

    Every environment gives one episode, so that short ones do not count more often than long ones.
    Which episodes begin is keyed by (seed, number) alone: two policies meet the same ones.
    """
    horizon = getattr(task, "horizon", 1000)
    run = [Episode(key(seed, "evaluate", i)) for i in range(count)]
    worlds = [task.make() for _ in run]
    seen = [world.reset(one.seed) for world, one in zip(worlds, run)]
    draws = torch.stack(
        [
            torch.rand(horizon, generator=generator(one.seed, "act"), dtype=torch.float64)
            for one in run
        ]
    )
    live = list(range(count))
    for step in range(horizon):
        at = torch.from_numpy(np.stack([seen[i] for i in live]))
        actions = policy.act(at, draws[live, step], temperature)[0]
        for i, action in zip(live, actions.tolist()):
            seen[i] = _step(worlds[i], action, run[i])
        live = [i for i in live if not run[i].finished]
        if not live:
            break
    for world in worlds:
        world.close()
    return run


def _step(world: Environment, action: int, one: Episode) -> np.ndarray:
    after, reward, terminated, truncated = world.step(action)
    one.total, one.steps = one.total + reward, one.steps + 1
    one.finished = terminated or truncated
    return after
