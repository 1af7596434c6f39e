"""Rewards of wrong answers by how sure the policy was."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.piece import Reward


@dataclass(frozen=True)
class Confidence(Reward):
    """Charge wrong answers for the confidence with which they were given.

    `r̃_i = r_i − (1 − r_i) · (1/k) · p_i/(D − p_i)`, p the geometric mean probability of the
    answer's tokens before the update, k the group's size, and D the prompt's difficulty,
    `D = max( ((1/k) Σ_j r_j/p_j)^{−1}, 2 max_j p_j )`; without a right answer `2 max_j p_j`.

    A wrong answer's reward lies in [−1/k, 0]. The difference is put on the last step. A column
    `mean_prob`, where a rollout records it, stands for p. Shapes: `[N]`.
    Reference: LENS, 2510.08696, equations 10 and 14. Its own piece because the charge follows from
    that paper's likelihood.
    """

    @property
    def needs(self) -> frozenset[str]:
        """`logp_old`."""
        return frozenset({"logp_old"})

    def __call__(self, batch: Batch) -> Tensor:
        """The charged rewards."""
        given = batch["reward"]
        reward = batch.sum(given, within="traj")
        p = self._probability(batch).to(given)
        rate = batch.mean(reward / p, "group", "traj")
        least = 2 * batch.max(p, "group", "traj")
        mixed = batch.max(facts.right(batch).to(given), "group", "traj") > 0
        implied = 1 / torch.where(mixed, rate, torch.ones_like(rate))
        difficulty = torch.where(mixed, torch.maximum(implied, least), least)
        size = batch.size("traj", "group").to(given)
        charge = (1 - reward) / size * p / (difficulty - p)
        return torch.where(batch.last("traj"), given - charge, given)

    def _probability(self, batch: Batch) -> Tensor:
        if "mean_prob" in batch:
            return batch["mean_prob"]
        return batch.mean(batch["logp_old"], within="traj").exp()
