"""Rollouts of controllers: streams of an environment, cut into episode fragments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.request import Request
from anypo.core.rng import generator, key


class Environment(Protocol):
    """One episode at a time; a seed decides everything that is random in it."""

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; the first observation, float32 `[O]`."""
        ...

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """The observation after the step (before any reset), reward, terminated, truncated."""
        ...

    def close(self) -> None:
        """Release what the environment holds."""
        ...


class ControlTask(Protocol):
    """What a rollout needs of a control task."""

    name: str

    def make(self) -> Environment:
        """A fresh environment, not yet reset."""
        ...


class Controller(Protocol):
    """What a rollout needs of a control policy."""

    def act(
        self, observation: Tensor, uniform: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Actions `[E]` for observations `[E, O]`, and the log-probabilities they had."""
        ...


class Stream:
    """An environment that begins a newly keyed episode whenever one ends, and its record."""

    def __init__(self, env: Environment, request: Request, prompt: int, sample: int) -> None:
        self.env, self.request, self.prompt = env, request, prompt
        words = (request.seed, "action", request.version, prompt, sample)
        draws = torch.rand(request.horizon, generator=generator(*words), dtype=torch.float64)
        self.uniform = draws.numpy()
        # Of each step: observation, next_observation, action, logp, reward, terminal.
        self.steps: list[tuple[np.ndarray, np.ndarray, int, float, float, bool]] = []
        self.fragments: list[dict[str, float]] = []
        self.restart()

    def restart(self) -> None:
        """Begin the next episode: its key names the stream's prompt, not the sample."""
        words = ("episode", self.request.version, self.prompt, len(self.fragments))
        self.observation = self.env.reset(key(self.request.seed, *words))
        self.first = len(self.steps)

    def step(self, action: int, logp: float) -> None:
        """Take an action and record it; an episode that ends is followed by the next."""
        after, reward, terminated, truncated = self.env.step(action)
        self.steps.append((self.observation, after, action, logp, reward, terminated))
        self.observation = after
        if terminated or truncated:
            self.end(terminated, finished=True)
            self.restart()

    def end(self, terminated: bool, finished: bool) -> None:
        """Close the running fragment; `finished` says whether the episode itself is over."""
        rewards = [step[4] for step in self.steps[self.first :]]
        if rewards:
            self.fragments.append(
                {
                    "terminated": terminated,
                    "steps": len(rewards),
                    "episode_return": sum(rewards) if finished else float("nan"),
                    "episode_length": len(rewards) if finished else float("nan"),
                }
            )


def rollout(request: Request, policy: Controller, task: ControlTask) -> Batch:
    """`horizon` environment steps of each of `prompts · samples` streams, prompt-major.

    A step is one action, and each is one `seq`; a `traj` is an episode, or the part of one that
    fits: its last step either terminated or was truncated, by the environment's time limit or by
    the horizon, and a truncation bootstraps from `next_observation`, which at the end of a
    fragment is the final observation. Columns: `reward`, `logp_mu`. Ids: `seq`, `traj`, `group`
    (the samples of one episode key; `traj` itself if there is one sample), `prompt` (the index of
    the stream in this run), `version`. Inputs: `observation[S, O]`, `next_observation[S, O]`,
    `action[S]`, `terminal[S]`. Table `traj`: `terminated`, `truncated`, `episode_return` and
    `episode_length` (NaN for an episode that the horizon cut).

    Every call starts fresh episodes, so nothing outlives an iteration and a resumed run repeats
    its bits. The price: states later than `horizon` are never visited, so the horizon should be
    the length of a whole episode. Episodes are keyed by (seed, version, prompt, how many came
    before), actions by (seed, version, prompt, sample).
    Raises `UsageError` if the environment returns an observation or reward that is not finite.
    """
    prompts = range(request.start, request.start + request.prompts)
    names = [(p, g) for p in prompts for g in range(request.samples)]
    streams = [Stream(task.make(), request, p, g) for p, g in names]
    for k in range(request.horizon):
        observation = torch.from_numpy(np.stack([s.observation for s in streams]))
        uniform = torch.from_numpy(np.array([s.uniform[k] for s in streams]))
        action, logp = policy.act(observation, uniform, request.temperature)
        for stream, a, lp in zip(streams, action.tolist(), logp.tolist()):
            stream.step(a, lp)
    for stream in streams:
        stream.end(terminated=False, finished=False)
        stream.env.close()
    return _batch(request, task.name, streams)


def _batch(request: Request, name: str, streams: list[Stream]) -> Batch:
    observation, after, action, logp, reward, terminal = zip(*[r for s in streams for r in s.steps])
    fragments = [f for s in streams for f in s.fragments]
    traj = _repeat(range(len(fragments)), [int(f["steps"]) for f in fragments])
    episode = [
        (i // request.samples, e) for i, s in enumerate(streams) for e in range(len(s.fragments))
    ]
    numbers: dict[tuple[int, int], int] = {}
    group = torch.tensor([numbers.setdefault(pair, len(numbers)) for pair in episode])
    ids = {
        "seq": torch.arange(len(action)),
        "traj": traj,
        "group": group[traj],
        "prompt": _repeat([s.prompt for s in streams], [request.horizon] * len(streams)),
        "version": torch.full((len(action),), request.version),
    }
    inputs = {
        "observation": torch.from_numpy(np.stack(observation)),
        "next_observation": torch.from_numpy(np.stack(after)),
        "action": torch.tensor(action),
        "terminal": torch.tensor(terminal),
    }
    columns = {"reward": torch.tensor(reward, dtype=torch.float32), "logp_mu": torch.tensor(logp)}
    _finite(name, columns["reward"], inputs["observation"], inputs["next_observation"])
    terminated = torch.tensor([bool(f["terminated"]) for f in fragments])
    table = {"terminated": terminated, "truncated": ~terminated}
    for what in ("episode_return", "episode_length"):
        table[what] = torch.tensor([f[what] for f in fragments], dtype=torch.float32)
    return Batch(columns, ids, {"traj": table}, inputs)


def _repeat(values: Iterable[int], counts: Sequence[int]) -> Tensor:
    return torch.tensor(list(values)).repeat_interleave(torch.tensor(counts))


def _finite(name: str, *values: Tensor) -> None:
    if not all(bool(x.isfinite().all()) for x in values):
        raise UsageError(
            f"the environment {name} returned an observation or a reward that is not finite; "
            "a failed simulation is no reward: mend the environment, or end the episode before it"
        )
