"""A detached importance weight, to be multiplied with a surrogate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LEVELS, Surrogate, require


@dataclass(frozen=True)
class Importance(Surrogate):
    """`sg(clip(exp Σ_{m ∈ unit} (logp_m − anchor_m), low, high))`: use as `a * Importance()`.

    It is its own piece because the weight's level and anchor need not be those of the log-ratio
    that the surrogate reads.

    Parameters: `level` (`step`, `turn`, `traj`; default `traj`), `to` (the anchor, `logp_old` or
    `logp_mu`, the sampler's; default the first), `low`, `high` (bounds of the weight itself,
    default 0 and ∞; below e^20 in any case). Couples the level. Shapes: `[N]`.
    Reference: with a cap, FlowRL, 2509.15207; truncated importance sampling, Ionides 2008.
    """

    level: str = "traj"
    to: str = "logp_old"
    low: float = 0.0
    high: float = math.inf

    def __post_init__(self) -> None:
        require(self.level in LEVELS[:3], self, "level", "step, turn or traj")
        require(self.to in ("logp_old", "logp_mu"), self, "to", "logp_old or logp_mu")
        require(0 <= self.low <= self.high, self, "low", "between 0 and high")
        require(self.high > 0, self, "high", "above 0 (inf = off)")

    @property
    def needs(self) -> frozenset[str]:
        """`logp` and the anchor."""
        return frozenset({"logp", self.to})

    @property
    def couples(self) -> str:
        """The level."""
        return self.level

    def __call__(self, batch: Batch) -> Tensor:
        """The weight."""
        with torch.no_grad():
            difference = batch["logp"] - batch[self.to].to(batch["logp"])
            if self.level != "step":
                difference = batch.sum(difference, within=self.level)
            return difference.clamp(max=20).exp().clamp(self.low, self.high)
