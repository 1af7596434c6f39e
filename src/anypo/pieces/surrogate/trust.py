"""Which steps may still push: a trust region on the divergence of single steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Surrogate, require
from anypo.math import coarse


@dataclass(frozen=True)
class Trust(Surrogate):
    """1 inside a trust region and 0 outside, without gradient: a factor, `Reinforce() * Trust()`.

    A step is outside when the policy has already moved the way that its advantage pushes, too far:
    A > 0, p > q and `D > high`, or A ≤ 0, p < q and `D > low`, with p, q the probabilities of the
    step under the policy and under `to`, and D their divergence.

    Parameters
    ----------
    form : of D: `binary_tv` (default, `|p − q|`) or `binary_kl`; see `anypo.math.coarse`. The
        forms over the k likeliest tokens need a policy that records them, and none does yet.
    low, high : thresholds (default 0.1; ∞ = off).
    to : the policy whose neighbourhood is trusted: `logp_mu`, the sampler's (default), or
        `logp_old`, as recomputed at the start of the update.

    It is its own piece because a ratio clip weighs rare and frequent tokens unequally, which is
    what the method is against. Shapes: `[N]`. Reference: DPPO, 2602.04879.
    """

    form: Literal["binary_tv", "binary_kl"] = "binary_tv"
    low: float = 0.1
    high: float = 0.1
    to: str = "logp_mu"

    def __post_init__(self) -> None:
        require(self.form in ("binary_tv", "binary_kl"), self, "form", "binary_tv or binary_kl")
        require(self.low >= 0, self, "low", "at least 0 (inf = off)")
        require(self.high >= 0, self, "high", "at least 0 (inf = off)")
        require(self.to in ("logp_mu", "logp_old"), self, "to", "logp_mu or logp_old")

    @property
    def needs(self) -> frozenset[str]:
        """`logp` and the trusted policy's."""
        return frozenset({"logp", self.to})

    def __call__(self, batch: Batch) -> Tensor:
        """The mask."""
        logp = batch["logp"].detach()
        anchor = batch[self.to].to(logp)
        found = coarse.binary(logp, anchor, self.form.removeprefix("binary_"))
        above = (logp > anchor) & (found > self.high)
        below = (logp < anchor) & (found > self.low)
        return torch.where(batch["advantage"] > 0, ~above, ~below).to(logp)
