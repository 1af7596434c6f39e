"""Transformations of a log-ratio, chained behind `Ratio`: `Ratio("traj") >> Standardise()`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LEVELS, LogRatio, require


@dataclass(frozen=True)
class Pool(LogRatio):
    """Mean of the log-ratio over the steps of a unit, `(1/n) Σ_{m ∈ unit(n)} log r_m`.

    Parameters: `level` (default `traj`). After a per-step transformation this is the geometric mean
    of the transformed ratios. Couples the level. Shapes: `[N]`. Reference: GMPO, 2507.20673.
    """

    level: str = "traj"

    def __post_init__(self) -> None:
        require(self.level in LEVELS[1:3], self, "level", "turn or traj")

    @property
    def couples(self) -> str:
        """The level."""
        return self.level

    def __call__(self, batch: Batch) -> Tensor:
        """The mean."""
        return batch.mean(batch["log_ratio"], within=self.level)


@dataclass(frozen=True)
class Standardise(LogRatio):
    """Centre and scale the log-ratios of whole units within a wider one, with gradient.

    `(h − mean h) / (sd h + eps)`.

    Parameters: `within` (default `group`), `over` (default `traj`; log-ratios must be constant on
    it), `eps` (default 1e-4: it bounds the gradient where all ratios are 1), `ddof` (default 1).
    Couples `within`. Shapes: `[N]`. Reference: Reg-GRPO, 2506.07464.
    """

    within: str = "group"
    over: str = "traj"
    eps: float = 1e-4
    ddof: int = 1

    def __post_init__(self) -> None:
        require(self.eps > 0, self, "eps", "above 0")
        require(self.ddof in (0, 1), self, "ddof", "0 or 1")

    @property
    def couples(self) -> str:
        """`within`."""
        return self.within

    def __call__(self, batch: Batch) -> Tensor:
        """The standardised log-ratio."""
        h = batch["log_ratio"]
        centred = h - batch.mean(h, self.within, self.over)
        count = (batch.size(self.over, self.within) - self.ddof).clamp(min=1).to(h)
        variance = batch.sum(centred**2, self.within, self.over) / count
        # The root has no slope at 0: there the deviation is the constant 0.
        flat = variance == 0
        deviation = torch.where(flat, torch.ones_like(variance), variance).sqrt()
        return centred / (torch.where(flat, torch.zeros_like(variance), deviation) + self.eps)
