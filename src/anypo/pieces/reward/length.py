"""Rewards that depend on how long right answers are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.piece import Reward, require
from anypo.math import segments


@dataclass(frozen=True)
class Brevity(Reward):
    """Right answers earn by their length against the group's right answers; wrong ones a constant.

    Right: `r · exp(−alpha · z)`, `z = (n − mean n)/(sd n + eps)` over the right answers of the
    group (sd 1 for a single one); wrong: `wrong`.

    Parameters
    ----------
    alpha : how much length costs (default 0.05).
    wrong : reward of a wrong answer (default −1).
    least : the outcome from which an answer is right (default 0: any above 0).
    gate : length counts only in groups whose three shortest answers are longer than this on
        average; smaller groups always count (default 0: always; the published code has 4000
        tokens).
    eps : default 1e-6.

    The difference is put on the last step. A column `length`, where a rollout records it, stands
    for the number of steps. Shapes: `[N]`. Reference: GRPO-LEAD, 2504.09696. Its own piece because
    the z-score is over right answers only and multiplies their reward.
    """

    alpha: float = 0.05
    wrong: float = -1.0
    least: float = 0.0
    gate: int = 0
    eps: float = 1e-6

    def __post_init__(self) -> None:
        require(0 <= self.alpha < math.inf, self, "alpha", "at least 0 and finite")
        require(math.isfinite(self.wrong), self, "wrong", "finite")
        require(self.least >= 0, self, "least", "at least 0")
        require(self.gate >= 0, self, "gate", "at least 0 (0 = off)")
        require(self.eps > 0, self, "eps", "above 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        given = batch["reward"]
        outcome, right = batch.sum(given, within="traj"), facts.right(batch, self.least)
        length = (batch["length"] if "length" in batch else batch.size("step", "traj")).to(given)
        wanted = torch.full_like(given, self.wrong)
        if bool(right.any()):
            wanted[right] = outcome[right] * self._factor(batch, length, right)
        return torch.where(batch.last("traj"), given - outcome + wanted, given)

    def _factor(self, batch: Batch, length: Tensor, right: Tensor) -> Tensor:
        """`exp(−alpha · z)` of the right answers."""
        chosen, n = batch.take(right), length[right]
        spread = chosen.std(n, "group", "traj")
        spread = torch.where(chosen.size("traj", "group") > 1, spread, torch.ones_like(n))
        z = (n - chosen.mean(n, "group", "traj")) / (spread + self.eps)
        counts = self._counts(batch, length)[right]
        return torch.where(counts, (-self.alpha * z).exp(), torch.ones_like(n))

    def _counts(self, batch: Batch, length: Tensor) -> Tensor:
        """Whether length counts in the group of a step: its three shortest answers are long."""
        rows = batch.with_({"n": length}).at("traj")
        shortest = segments.segment_place(rows["n"], rows.id("group")) < 3
        total = rows.sum(torch.where(shortest, rows["n"], 0.0), "group", "traj")
        counts = (rows.size("traj", "group") < 3) | (total / 3 > self.gate)
        return batch.spread("traj", counts)
