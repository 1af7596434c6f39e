"""Training on a random part of an answer's steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Aggregate, require


@dataclass(frozen=True)
class Subset(Aggregate):
    """A factor that keeps the first steps of a trajectory, and of the others a random share.

    A kept step counts as many times as its trajectory has steps for each that is kept, `n/|T|`, so
    that the mean of the kept ones stands for that of all; a dropped one is taken out. With
    `unbiased` it counts one over the probability that it is kept: the expectation over all subsets
    is then exactly the whole.

    Parameters: `share` (probability of the steps after the first ones, default 0.4), `first` (how
    many are always kept, default 1), `unbiased` (default no). Steps are chosen by their lot. Use as
    `Mean("step", "traj", "batch") * Subset()`. Shapes: `[N]`. Reference: S-GRPO, 2504.20834.
    Its own piece because no other weight is drawn.
    """

    share: float = 0.4
    first: int = 1
    unbiased: bool = False

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, self, "share", "above 0 and at most 1")
        require(self.first >= 0, self, "first", "at least 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The factor."""
        lot, length = batch["lot"].double(), batch.size("step", "traj")
        place = length - batch.scan(torch.ones_like(lot), 1.0)
        always = place < self.first
        kept = always | (lot < self.share)
        count = batch.sum(kept.double(), within="traj")
        factor = length / count.clamp(min=1)
        if self.unbiased:
            factor = torch.where(always, 1.0, torch.full_like(lot, 1 / self.share))
        return torch.where(kept, factor, 0.0)
