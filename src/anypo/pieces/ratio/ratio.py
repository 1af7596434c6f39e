"""Importance ratios at any level."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LogRatio, require


@dataclass(frozen=True)
class Ratio(LogRatio):
    """Log-probability against an earlier policy, summed or averaged over a unit.

    `log r_n = Σ_{m ∈ unit(n)} (logp_m − anchor_m)`, divided by the unit's length when `mean`.

    Parameters
    ----------
    level : `step` (PPO), `segment` (Rank-GRPO), `turn`, or `traj` (GSPO with `mean`, REBEL, GVPO
        and DPO without).
    mean : divide by the number of steps of the unit (geometric mean of the ratios).
    to : the anchor: `logp_old` (start of the update), `logp_mu` (the sampler's), `ref.base`.
    cap : bound on |log r| (default 20, as verl has it; ∞ = off). Beyond it the gradient is 0.

    Shapes: `[N]`. Deviation: the GSPO code caps its log-ratio at 10 from above only; the paper has
    no cap. Reference: PPO, 1707.06347; GSPO, 2507.18071.
    """

    level: str = "step"
    mean: bool = False
    to: str = "logp_old"
    cap: float = 20.0

    def __post_init__(self) -> None:
        known = ("step", "segment", "turn", "traj")
        require(self.level in known, self, "level", "step, segment, turn or traj")
        require(self.cap > 0, self, "cap", "above 0")
        known = self.to in ("logp_old", "logp_mu") or self.to.startswith("ref.")
        require(known, self, "to", "logp_old, logp_mu or ref.NAME")

    @property
    def needs(self) -> frozenset[str]:
        """`logp` and the anchor."""
        return frozenset({"logp", self.to})

    @property
    def couples(self) -> str:
        """The level; a segment lies in its trajectory."""
        return "traj" if self.level == "segment" else self.level

    def __call__(self, batch: Batch) -> Tensor:
        """The log-ratio."""
        difference = batch["logp"] - batch[self.to].to(batch["logp"])
        if self.level != "step":
            reduce = batch.mean if self.mean else batch.sum
            difference = reduce(difference, within=self.level)
        return difference.clamp(-self.cap, self.cap) if self.cap < torch.inf else difference
