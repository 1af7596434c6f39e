"""Soft overlong punishment."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Reward, require


@dataclass(frozen=True)
class Overlong(Reward):
    """A penalty on the last step that grows linearly over the last `buffer` tokens of the budget.

    `reward_last += factor · clip((L − buffer − n) / buffer, −1, 0)` for a trajectory of n steps.

    Parameters
    ----------
    buffer : tokens over which the penalty grows, or a share of `limit` when below 1 (default 0.2:
        4096 of 20480 in the paper).
    limit : L, the budget in tokens (0 = the run's horizon).
    factor : the largest penalty (default 1, the paper's).

    The paper caps the penalty at −1 beyond L; verl's code does not cap, which differs only for
    lengths above L. Raises `UsageError` when no budget is known. Shapes: `[N]`.
    Reference: DAPO, 2503.14476, equation 13.
    """

    buffer: float = 0.2
    limit: int = 0
    factor: float = 1.0

    def __post_init__(self) -> None:
        require(self.buffer > 0, self, "buffer", "above 0")
        require(self.limit >= 0, self, "limit", "at least 0 (0 = the run's horizon)")
        require(self.factor >= 0, self, "factor", "at least 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The reward with the penalty on the last step of each trajectory."""
        reward = batch["reward"]
        limit = self._limit(batch).to(reward)
        buffer = self.buffer if self.buffer >= 1 else self.buffer * limit
        length = batch.size("step", within="traj").to(reward)
        penalty = self.factor * ((limit - buffer - length) / buffer).clamp(-1.0, 0.0)
        return torch.where(batch.last("traj"), reward + penalty, reward)

    def _limit(self, batch: Batch) -> Tensor:
        if self.limit:
            return torch.tensor(float(self.limit))
        if "horizon" not in batch.table("traj"):
            raise UsageError("Overlong needs a budget: give limit, or use it in a run")
        return batch.spread("traj", torch.as_tensor(batch.table("traj")["horizon"]).double())
