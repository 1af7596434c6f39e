"""What the parts of an answer that are still to come are worth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage


@dataclass(frozen=True)
class Onward(Advantage):
    """The sum of another advantage over a step's segment and those after it.

    `A_n = Σ_{k ≥ k(n)} Â_k`, with Â constant on each segment; use as
    `Baseline("segment", "group", scale="std") >> Onward()`. Its own piece because `Return` sums
    rewards as they came, and here they are compared first. Shapes: `[N]`.
    Reference: process supervision in DeepSeekMath, 2402.03300, section 4.1.3.
    """

    def __call__(self, batch: Batch) -> Tensor:
        """The sums."""
        own = batch["advantage"]
        return batch.scan(torch.where(batch.last("segment"), own, 0.0), 1.0, within="traj")
