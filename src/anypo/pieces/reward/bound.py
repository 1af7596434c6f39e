"""Bounds on the task's reward."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Reward, require


@dataclass(frozen=True)
class Bound(Reward):
    """Clamp the reward of every step: `reward_n = clip(reward_n, −limit, limit)`.

    Parameters: `limit` (default 10, OpenRLHF's bound on a reward model's score; 0 leaves no reward
    of the task at all, for recipes that take theirs from a value model). Shapes: `[N]`.
    Reference: RTO, 2404.18922; none at all, DVPO, 2502.16944.
    """

    limit: float = 10.0

    def __post_init__(self) -> None:
        require(self.limit >= 0, self, "limit", "at least 0 (0 = no reward)")

    def __call__(self, batch: Batch) -> Tensor:
        """The clamped reward."""
        return batch["reward"].clamp(-self.limit, self.limit)
