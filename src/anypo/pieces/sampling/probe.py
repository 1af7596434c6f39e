"""Rollouts that only serve as a baseline: a greedy answer, answers of the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Sampling, require
from anypo.core.request import Request
from anypo.math import segments


@dataclass(frozen=True)
class Probe(Sampling):
    """Answer every prompt again, and keep of it one number per trajectory, the column `name`.

    The number is the soft mean of the rewards of the prompt's probe answers,
    `tau · log mean exp(R/tau)` (→ 0 the best, ∞ the mean), or, with `paired`, the reward of the
    probe answer with the trajectory's own index. Probe answers are never trained on.

    Parameters
    ----------
    name : the column, which an advantage reads (`Versus(name)`).
    samples : probe answers per prompt (default 1; with `paired`, the group size).
    policy : name of a reference that answers; empty (default) for the policy itself.
    temperature : of the probe answers; 0 (default) is greedy.
    tau : of the soft mean (default ∞).
    paired : one probe answer for each trajectory (default no).

    A prompt without a scorable probe answer raises `UsageError`. Use as `Groups(1) >> Probe(…)`.
    Shapes: the column `[N]`. Reference: greedy baseline, ReMax, 2310.10505; optimal value from
    reference answers, A*-PO, 2505.20686.
    """

    name: str = "greedy"
    samples: int = 1
    policy: str = ""
    temperature: float = 0.0
    tau: float = float("inf")
    paired: bool = False

    def __post_init__(self) -> None:
        require(self.samples >= 1, self, "samples", "at least 1")
        require(self.temperature >= 0, self, "temperature", "at least 0 (0 = greedy)")
        alone = self.temperature > 0 or self.samples == 1
        require(alone, self, "samples", "1 when greedy: greedy answers do not differ")
        require(self.tau > 0, self, "tau", "above 0")

    @property
    def needs(self) -> frozenset[str]:
        """Trajectories of the reference."""
        return frozenset({f"ref.{self.policy}.rollout"} if self.policy else ())

    @property
    def probes(self) -> tuple[Probe, ...]:
        """Itself."""
        return (self,)

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """Nothing more than what is wanted anyway."""
        return None if rounds else wanted

    def ask(self, request: Request) -> Request:
        """The same prompts, in a stream of their own."""
        samples = request.samples if self.paired else self.samples
        where = {"policy": self.policy, "stream": f"probe {self.name}", "tags": {}}
        return replace(request, samples=samples, temperature=self.temperature, **where)

    def read(self, batch: Batch, probed: Batch) -> Tensor:
        """The probe's number for every step of the batch."""
        rewards = probed.sum(probed["reward"], within="traj") if len(probed) else torch.zeros(0)
        last = probed.last("traj")
        found: dict[int, list[float]] = {}
        for prompt, reward in zip(probed.id("prompt")[last].tolist(), rewards[last].tolist()):
            found.setdefault(prompt, []).append(reward)
        return _per_trajectory(self, batch, found).to(batch["reward"])


def _per_trajectory(piece: Probe, batch: Batch, found: dict[int, list[float]]) -> Tensor:
    last = batch.last("traj")
    numbers, seen = [], dict.fromkeys(found, 0)
    for prompt in batch.id("prompt")[last].tolist():
        rewards = found.get(prompt, [])
        if not rewards:
            raise UsageError("a probe answer could not be scored: its prompt has no baseline")
        numbers.append(
            rewards[seen[prompt] % len(rewards)] if piece.paired else soft_mean(rewards, piece.tau)
        )
        seen[prompt] += 1
    traj, _ = segments.dense(batch.id("traj"))
    return torch.tensor(numbers, dtype=torch.float64)[traj]


def soft_mean(rewards: list[float], tau: float) -> float:
    """`tau · log mean exp(R/tau)`; the mean for tau = ∞."""
    values = torch.tensor(rewards, dtype=torch.float64)
    if tau == float("inf"):
        return float(values.mean())
    return float(tau * (torch.logsumexp(values / tau, 0) - math.log(len(rewards))))
