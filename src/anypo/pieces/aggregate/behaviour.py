"""Weights for data of a policy that is not the one at the start of the update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Aggregate, require


@dataclass(frozen=True)
class Behaviour(Aggregate):
    """Importance weight of the policy before the update over the one that sampled.

    `w_n = exp(logp_old − logp_mu)`, a factor on another aggregate: `Mean(…) * Behaviour()`.

    Parameters: `cap` (largest weight, default ∞), `cap_mode` (what happens above it: `mask`, the
    default, takes the step out, though it still counts in a mean; `clamp` lowers the weight).
    It is its own piece because other weights count steps and do not look at policies.
    Shapes: `[N]`. Reference: decoupled PPO, 2110.00641; caps, AReaL's code.
    """

    cap: float = math.inf
    cap_mode: Literal["mask", "clamp"] = "mask"

    def __post_init__(self) -> None:
        require(self.cap > 0, self, "cap", "above 0 (inf = off)")
        require(self.cap_mode in ("mask", "clamp"), self, "cap_mode", "mask or clamp")

    @property
    def needs(self) -> frozenset[str]:
        """`logp_old`, `logp_mu`."""
        return frozenset({"logp_old", "logp_mu"})

    def __call__(self, batch: Batch) -> Tensor:
        """The weights."""
        weight = (batch["logp_old"] - batch["logp_mu"]).double().exp()
        if self.cap_mode == "clamp":
            return weight.clamp(max=self.cap)
        return torch.where(weight > self.cap, torch.zeros_like(weight), weight)
