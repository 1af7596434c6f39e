"""A clipped surrogate that drops a few steps which would lower the entropy most."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Surrogate, require
from anypo.math import select
from anypo.pieces.surrogate.clip import clipped


@dataclass(frozen=True)
class CovarianceClip(Surrogate):
    """PPO's clip, and no gradient on a random few of the steps whose advantage and `logp` covary.

    `cov_n = (A_n − mean A)(logp_n − mean logp)` over the update batch. Candidates are steps with
    `cov_lb < cov < cov_ub` that PPO does not clip; of these, `max(1, ⌊cov_ratio·N⌋)` with the
    smallest lots get the objective 0. They still count in the aggregate's denominator.

    Parameters: `low`, `high` (distance of the bounds from 1, default 1: nearly off), `cov_ratio`
    (share of steps that are dropped, default 2e-4), `cov_lb`, `cov_ub` (bounds of the covariance,
    default 1 and 5). Without a candidate it is PPO. It is its own piece because the choice looks at
    whether PPO clips a step. Couples the batch: means are taken over it. Shapes: `[N]`.
    Reference: Clip-Cov, 2505.22617.
    """

    low: float = 1.0
    high: float = 1.0
    cov_ratio: float = 2e-4
    cov_lb: float = 1.0
    cov_ub: float = 5.0

    def __post_init__(self) -> None:
        require(0 <= self.low <= 1, self, "low", "between 0 and 1")
        require(self.high >= 0, self, "high", "at least 0")
        require(0 < self.cov_ratio <= 1, self, "cov_ratio", "above 0 and at most 1")
        require(self.cov_lb >= 0, self, "cov_lb", "at least 0")
        require(self.cov_lb < self.cov_ub, self, "cov_ub", "above cov_lb")

    @property
    def needs(self) -> frozenset[str]:
        """`logp`, `lot`."""
        return frozenset({"logp", "lot"})

    @property
    def couples(self) -> str:
        """The batch."""
        return "batch"

    def __call__(self, batch: Batch) -> Tensor:
        """The clipped objective, 0 where a step is dropped."""
        ratio, advantage = batch["log_ratio"].exp(), batch["advantage"]
        objective = clipped(ratio, advantage, 1 - self.low, 1 + self.high, torch.inf)
        covariance = select.covariance(advantage, batch["logp"].detach().to(advantage))
        free = objective.detach() == (ratio * advantage).detach()
        candidate = free & (covariance > self.cov_lb) & (covariance < self.cov_ub)
        lot = batch["lot"]
        value = torch.where(candidate, -lot, torch.full_like(lot, -torch.inf))
        dropped = select.largest(value, lot, select.quota(self.cov_ratio, len(batch)))
        return torch.where(dropped, torch.zeros_like(objective), objective)
