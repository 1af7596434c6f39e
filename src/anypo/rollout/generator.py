"""Rollouts of generators: denoising paths, whose end point is rewarded."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.request import Request
from anypo.core.rng import generator


class Generator(Protocol):
    """What a rollout needs of a generator policy."""

    dim: int
    steps: int

    def denoise(self, noise: Tensor) -> dict[str, Tensor]:
        """Paths from `noise[B, steps + 1, dim]`: the inputs, `std` and `logp`, `[B, steps, …]`."""
        ...


class GeneratorTask(Protocol):
    """What a rollout needs of a generator task."""

    name: str

    def reward(self, x: Tensor) -> Tensor:
        """Reward of finished points, `[B, dim] → [B]`."""
        ...


def rollout(request: Request, policy: Generator, task: GeneratorTask) -> Batch:
    """`prompts · samples` denoising paths of the policy, prompt-major.

    A step is one denoising transition, and each is one `seq`. Columns: `reward` (the task's, on
    the last step of a path), `logp_mu` and `std` as recorded by the sampler. Ids: `seq`, `traj`,
    `group` (the samples of one condition), `prompt` (the index of the condition in this run),
    `position` (the denoising step, 0 at noise), `version`. Inputs: those of the policy. Table
    `traj`: `terminated` (always), `truncated` (never) and the finished `sample[B, dim]`.

    The noise of a path is keyed by (seed, version, prompt, sample): it depends on no other path.
    `request.horizon` is not used, the policy says how many steps a path has.
    Raises `UsageError` for a temperature other than 1, and for rewards of the wrong shape.
    """
    if request.temperature != 1:
        raise UsageError(
            f"a generator has no temperature, and {request.temperature} was asked for: leave it "
            "at 1, and set the policy's `noise` instead"
        )
    G, K = request.samples, policy.steps
    prompt = request.start + torch.arange(request.prompts).repeat_interleave(G)
    words = [(request.version, p, g) for p in prompt.tolist()[::G] for g in range(G)]
    noise = [
        torch.randn(K + 1, policy.dim, generator=generator(request.seed, "denoise", *w))
        for w in words
    ]
    path = policy.denoise(torch.stack(noise))
    sample = path["x_next"][:, -1].float()
    B = len(sample)
    reward = torch.zeros(B, K)
    reward[:, -1] = _rewards(task, sample)
    traj = torch.arange(B).repeat_interleave(K)
    ids = {
        "seq": torch.arange(B * K),
        "traj": traj,
        "group": traj // G,
        "prompt": prompt[traj],
        "position": torch.arange(K).repeat(B),
        "version": torch.full((B * K,), request.version),
    }
    columns = {
        "reward": reward.flatten(),
        "logp_mu": path.pop("logp").float().flatten(),
        "std": path.pop("std").float().flatten(),
    }
    ended = {"terminated": torch.ones(B, dtype=torch.bool)}
    ended["truncated"] = ~ended["terminated"]
    inputs = {name: x.flatten(0, 1) for name, x in path.items()}
    return Batch(columns, ids, {"traj": {**ended, "sample": sample}}, inputs)


def _rewards(task: GeneratorTask, sample: Tensor) -> Tensor:
    reward = torch.as_tensor(task.reward(sample), dtype=torch.float32)
    if reward.shape != (len(sample),):
        raise UsageError(
            f"the reward of {task.name} has shape {tuple(reward.shape)} for {len(sample)} points; "
            f"return one number per point, shape ({len(sample)},)"
        )
    return reward
