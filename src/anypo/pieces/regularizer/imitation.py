"""Supervised learning beside a policy objective."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LEVELS, Regularizer, require


@dataclass(frozen=True)
class Imitation(Regularizer):
    """Raise the likelihood of the better answers: `−coef · mean logp` over their steps.

    Steps with advantage above 0 are imitated. Their mean within each unit is the recipe's own:
    `−coef · (W/W⁺) · logp`, where W sums the weights of the unit and W⁺ those of its imitated
    steps, so that a unit counts as much as the recipe says, whatever share of it is imitated. A
    unit without a better answer contributes 0.

    Parameters: `coef` (default 0.2), `within` (the unit, default `group`: for a pair, the chosen
    answer), `mean` (default yes: over the steps of an answer; no: their sum). Couples `within`.
    Shapes: `[N]`. Reference: RPO, 2405.16436. Its own piece because every term of imitation beside
    another objective is this one.
    """

    coef: float = 0.2
    within: str = "group"
    mean: bool = True

    metric = "imitation"

    def __post_init__(self) -> None:
        require(self.coef >= 0, self, "coef", "at least 0")
        require(self.within in LEVELS[2:], self, "within", "traj, group or batch")

    @property
    def coefficient(self) -> float:
        """`coef`."""
        return self.coef

    @property
    def needs(self) -> frozenset[str]:
        """`logp`."""
        return frozenset({"logp"})

    @property
    def couples(self) -> str:
        """`within`: weights of other steps count."""
        return self.within

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        logp, weight, better = batch["logp"], batch["weight"], batch["advantage"] > 0
        kept = batch.sum(torch.where(better, weight, torch.zeros_like(weight)), self.within)
        share = batch.sum(weight, self.within) / torch.where(kept > 0, kept, torch.ones_like(kept))
        share = share if self.mean else share * batch.size("step", "traj")
        return torch.where(better, -self.coef * share * logp, torch.zeros_like(logp))
