"""Penalties made of other penalties: within a budget, or by their slope alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.combine import Combined, value
from anypo.core.piece import Regularizer, require


@dataclass(frozen=True)
class Tangent(Combined, Regularizer):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A penalty in REINFORCE style: `sg(∂penalty/∂logp) · logp`, the same gradient.

    The slope is taken where `π/π_old` is clipped to `[1 − low, 1 + high]`. It is its own piece
    because a clip inside a slope is no function of a clipped penalty: beyond the bound the step
    keeps the slope that it has there.

    Parameters: `part` (the penalty; it reads `logp`), `low`, `high` (distance of the bounds from
    1, default ∞: not clipped). Shapes: `[N]`. Reference: RPG, 2505.17508.
    """

    part: Regularizer
    low: float = math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.low >= 0, self, "low", "at least 0")
        require(self.high >= 0, self, "high", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """What the part needs, `logp` and `logp_old`."""
        return super().needs | {"logp", "logp_old"}

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        logp, old = batch["logp"], batch["logp_old"].to(batch["logp"])
        least = math.log1p(-self.low) if self.low < 1 else -math.inf
        gap = (logp - old).detach().clamp(least, math.log1p(self.high))
        with torch.enable_grad():
            point = (old + gap).detach().requires_grad_()
            penalty = value(self.part, batch.with_({"logp": point})).sum()
            if not penalty.requires_grad:  # its coefficient is 0
                return torch.zeros_like(logp)
            (slope,) = torch.autograd.grad(penalty, point)
        return slope * logp


@dataclass(frozen=True)
class Hinge(Combined, Regularizer):  # pyright: ignore[reportIncompatibleVariableOverride]
    """A budget for the mean of a penalty: `sg(slope · max(K − budget, 0)) · K` on every step.

    `K` is the mean of the part over all steps of the update batch. With weights that sum to 1 the
    gradient is that of `slope/2 · max(K − budget, 0)²`. It is its own piece because no other
    penalty depends on the size of a mean.

    Parameters: `part` (the penalty), `budget` (default 1e-4), `slope` (default 1000). Couples the
    batch. Shapes: `[N]`, constant. Reference: DisCO, 2505.12366.
    """

    part: Regularizer
    budget: float = 1e-4
    slope: float = 1e3

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.budget >= 0, self, "budget", "at least 0")
        require(self.slope > 0, self, "slope", "above 0")

    @property
    def couples(self) -> str:
        """The batch."""
        return "batch"

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        mean = batch.mean(value(self.part, batch), within="batch")
        return (self.slope * (mean.detach() - self.budget)).clamp(min=0) * mean
