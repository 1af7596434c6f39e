"""Full weight above a quantile of a column, less below."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Aggregate, require


@dataclass(frozen=True)
class Gate(Aggregate):
    """1 where a column reaches its quantile over the update batch, `below` elsewhere.

    A factor on another aggregate, `Mean(…) * Gate()`; the mean still counts every step.

    Parameters: `quantile` (default 0.8), `below` (default 0.1; 0 takes those steps out), `column`
    (default `entropy_old`). It is its own piece because a mean weighs steps by their number alone.
    Shapes: `[N]`. Reference: EGSPO, 2602.03309.
    """

    quantile: float = 0.8
    below: float = 0.1
    column: str = "entropy_old"

    def __post_init__(self) -> None:
        require(0 <= self.quantile <= 1, self, "quantile", "between 0 and 1")
        require(0 <= self.below <= 1, self, "below", "between 0 and 1")

    @property
    def needs(self) -> frozenset[str]:
        """The column."""
        return frozenset({self.column})

    def __call__(self, batch: Batch) -> Tensor:
        """The factor."""
        x = batch[self.column].double()
        above = x >= batch.quantile(x, self.quantile, within="batch")
        return torch.where(above, torch.ones_like(x), torch.full_like(x, self.below))
