"""Transformations of a log-ratio, chained behind `Ratio`: `Ratio("traj") >> Standardise()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import LEVELS, LogRatio, require

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class Pool(LogRatio):
    """Mean of the log-ratio over the steps of a unit, `(1/n) Σ_{m ∈ unit(n)} log r_m`.

    Parameters: `level` (default `traj`), `arithmetic` (the log of the mean of the ratios
    themselves, `log (1/n) Σ r_m`; default no). After a per-step transformation this is the
    geometric mean of the transformed ratios. Couples the level. Shapes: `[N]`. Reference: GMPO,
    2507.20673; arithmetic, GRPO-S, 2508.04349 (unverified there).
    """

    level: str = "traj"
    arithmetic: bool = False

    def __post_init__(self) -> None:
        require(self.level in LEVELS[1:3], self, "level", "turn or traj")

    @property
    def couples(self) -> str:
        """The level."""
        return self.level

    def __call__(self, batch: Batch) -> Tensor:
        """The mean."""
        if self.arithmetic:
            return batch.mean(batch["log_ratio"].exp(), within=self.level).log()
        return batch.mean(batch["log_ratio"], within=self.level)


@dataclass(frozen=True)
class Standardise(LogRatio):
    """Centre and scale the log-ratios of whole units within a wider one, with gradient.

    `(h − mean h) / (sd h + eps)`.

    Parameters: `within` (default `group`), `over` (default `traj`; log-ratios must be constant on
    it), `eps` (default 1e-4: it bounds the gradient where all ratios are 1), `ddof` (default 1).
    Couples `within`. Shapes: `[N]`. Reference: Reg-GRPO, 2506.07464. Its own piece because what
    standardises advantages has no gradient.
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

    def check(self, recipe: Recipe) -> None:
        """Two standardised numbers are always ±√½: only their order would be left."""
        if (self.over, self.within) == ("traj", "group") and recipe.sampling.group < 3:
            raise UsageError("standardised log-ratios need groups of at least 3; raise the group")

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


@dataclass(frozen=True)
class LogClip(LogRatio):
    """Clip the log-ratio to a window around a clipped mean.

    `clip(d, c − low, c + high)` with `c = clip(mean of d over the trajectory, −delta, delta)`.

    Parameters
    ----------
    low, high : half-widths in log space (default 0.4).
    delta : how far the window may move with its trajectory (default 0: it stays around 0).
    one_sided : only the bound that the advantage pushes against acts, as in PPO's minimum: the
        upper one for A > 0, the lower one for A < 0 (default no).

    A step inside has the gradient of its own log-ratio, one outside only that of the centre. With
    `delta` it couples the trajectory. Shapes: `[N]`. Reference: one-sided, GMPO, 2507.20673;
    moving window, FiberPO, 2603.08239.
    """

    low: float = 0.4
    high: float = 0.4
    delta: float = 0.0
    one_sided: bool = False

    def __post_init__(self) -> None:
        require(self.low >= 0, self, "low", "at least 0")
        require(self.high >= 0, self, "high", "at least 0")
        require(self.delta >= 0, self, "delta", "at least 0")

    @property
    def couples(self) -> str:
        """The trajectory, when the window moves with it."""
        return "traj" if self.delta else "step"

    def __call__(self, batch: Batch) -> Tensor:
        """The clipped log-ratio."""
        d = batch["log_ratio"]
        centre = torch.zeros_like(d)
        if self.delta:
            centre = batch.mean(d, within="traj").clamp(-self.delta, self.delta)
        clipped = centre + (d - centre).clamp(-self.low, self.high)
        if not self.one_sided:
            return clipped
        advantage = batch["advantage"]
        outside = torch.where(advantage > 0, clipped < d, (advantage < 0) & (clipped > d))
        return torch.where(outside, clipped, d)


@dataclass(frozen=True)
class Smooth(LogRatio):
    """Pull the ratio towards 1: `log((1 − alpha)·r + alpha)`, the policy mixed with the old one.

    Parameters: `alpha` (share of the old policy, default 0.1; in [0, 1)). It is its own piece
    because a mixture of probabilities is no clip. Shapes: `[N]`. Reference: PSPO, 2509.21282.
    """

    alpha: float = 0.1

    def __post_init__(self) -> None:
        require(0 <= self.alpha < 1, self, "alpha", "at least 0 and below 1")

    def __call__(self, batch: Batch) -> Tensor:
        """The smoothed log-ratio."""
        return torch.log1p((1 - self.alpha) * torch.expm1(batch["log_ratio"]))
