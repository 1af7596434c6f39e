"""The clipped surrogate of PPO, with fixed and with balanced bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Surrogate, require


def clipped(
    ratio: Tensor, advantage: Tensor, low: Tensor | float, high: Tensor | float, dual: float
) -> Tensor:
    """`min(r·A, clip(r, low, high)·A)`, and at least `dual·A` where A < 0; shapes `[N]`."""
    bounded = torch.clamp(ratio, low, high)  # pyright: ignore[reportCallIssue, reportArgumentType]
    objective = torch.minimum(ratio * advantage, bounded * advantage)
    floor = dual * advantage if math.isfinite(dual) else torch.full_like(advantage, -torch.inf)
    return torch.where(advantage < 0, torch.maximum(objective, floor), objective)


@dataclass(frozen=True)
class Clip(Surrogate):
    """PPO's pessimistic minimum of the raw and the clipped term.

    `min(r·A, clip(r, 1−low, 1+high)·A)`; with `dual = c`, where A < 0, at least `c·A`.

    Parameters: `low`, `high` (distance of the bounds from 1, default 0.2), `dual` (c > 1, default
    ∞: off, as in the paper; verl's code has 3). A ratio exactly on a bound keeps its gradient.
    Shapes: `[N]`. Reference: PPO, 1707.06347; dual clip, 1912.09729; two bounds, 2503.14476.
    """

    low: float = 0.2
    high: float = 0.2
    dual: float = math.inf

    def __post_init__(self) -> None:
        require(0 <= self.low <= 1, self, "low", "between 0 and 1")
        require(self.high >= 0, self, "high", "at least 0")
        require(self.dual > 1, self, "dual", "above 1 (inf = off)")

    def __call__(self, batch: Batch) -> Tensor:
        """The clipped objective."""
        ratio = batch["log_ratio"].exp()
        return clipped(ratio, batch["advantage"], 1 - self.low, 1 + self.high, self.dual)


@dataclass(frozen=True)
class BalancedClip(Surrogate):
    """PPO whose bounds widen until positive contributions are `target` times the negative ones.

    `e = A·(min(r, high) if A ≥ 0 else max(r, low))`, `q = Σ⁺e / −Σ⁻e`; while `q < target`, first
    `low` rises to `low_max`, then `high` to `high_max`. Bounds are ratios, not distances from 1,
    and start afresh in every update batch.

    Parameters: `low`, `low_max`, `high`, `high_max`, `increment`, `target`, `dual`, `eps`, defaults
    0.6, 0.8, 1.2, 2.0, 0.05, 1.0, 3.0, 1e-8 (the code's).
    Deviation: the paper defines the balance on the share of the positive loss contribution; the
    code, followed here, on the ratio q. Raising `low` can only lower q (it raises max(r, low)), so
    the first loop always runs to its end: it matters through which negatives keep a gradient.
    Couples the batch: q is a sum over it. Shapes: `[N]`. Reference: BAPO, 2510.18927. Its own piece
    because its bounds are searched for.
    """

    low: float = 0.6
    low_max: float = 0.8
    high: float = 1.2
    high_max: float = 2.0
    increment: float = 0.05
    target: float = 1.0
    dual: float = 3.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        require(0 <= self.low <= self.low_max, self, "low", "between 0 and low_max")
        require(self.low_max <= self.high, self, "low_max", "at most high")
        require(self.high <= self.high_max, self, "high", "at most high_max")
        require(self.increment > 0, self, "increment", "above 0")
        require(self.target >= 0, self, "target", "at least 0")
        require(self.eps >= 0, self, "eps", "at least 0")
        require(self.dual > 1, self, "dual", "above 1 (inf = off)")

    @property
    def couples(self) -> str:
        """The batch: the bounds depend on all of its ratios."""
        return "batch"

    def bounds(self, ratio: Tensor, advantage: Tensor) -> tuple[float, float, float]:
        """The bounds found, and the balance q at them."""
        found = [self.low, self.high]
        for side, most in enumerate((self.low_max, self.high_max)):
            while self._balance(ratio, advantage, *found) < self.target and found[side] < most:
                found[side] = min(round(found[side] + self.increment, 12), most)
        return found[0], found[1], self._balance(ratio, advantage, *found)

    def _balance(self, ratio: Tensor, advantage: Tensor, low: float, high: float) -> float:
        up, down = ratio.clamp(max=high), ratio.clamp(min=low)
        contribution = advantage * torch.where(advantage >= 0, up, down)
        negative = -float(contribution.clamp(max=0).sum())
        return (
            float(contribution.clamp(min=0).sum()) / (negative + self.eps)
            if negative > 0
            else math.inf
        )

    def __call__(self, batch: Batch) -> Tensor:
        """The clipped objective under the bounds found."""
        ratio, advantage = batch["log_ratio"].exp(), batch["advantage"]
        low, high, _ = self.bounds(ratio.detach(), advantage)
        return clipped(ratio, advantage, low, high, self.dual)
