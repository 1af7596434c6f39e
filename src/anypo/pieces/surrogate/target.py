"""Regressing the ratio onto a bounded target."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Surrogate, require


@dataclass(frozen=True)
class Attract(Surrogate):
    """Pull the ratio towards a target between the bounds: `−|(r − t)·A|`.

    `t = 1 − low + (low + high)·σ(u/temperature)` with u the column `target`, without gradient: a
    large u draws the ratio to the upper bound and never beyond it. Where u is 0 the target is the
    middle of the bounds, which is 1 only if they are symmetric.

    Parameters: `low`, `high` (distance of the bounds from 1, default 0.2), `temperature` (default
    1; → 0 is a hard step). Reads `target`, which `Beside(…, "target", …)` writes.
    It is its own piece because a squared error of log-ratios has neither this bound nor this slope.
    Shapes: `[N]`. Reference: bounded-ratio RL, 2604.18578.
    """

    low: float = 0.2
    high: float = 0.2
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.low <= 1, self, "low", "between 0 and 1")
        require(self.high >= 0, self, "high", "at least 0")
        require(self.temperature > 0, self, "temperature", "above 0")

    @property
    def needs(self) -> frozenset[str]:
        """`target`, which is recorded."""
        return frozenset({"target"})

    def __call__(self, batch: Batch) -> Tensor:
        """The negative weighted distance."""
        ratio = batch["log_ratio"].exp()
        share = (batch["target"].to(ratio) / self.temperature).sigmoid()
        target = 1 - self.low + (self.low + self.high) * share
        return -((ratio - target) * batch["advantage"]).abs()
