"""Means of a column, and weights that compete within a group."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LEVELS, Advantage, require


@dataclass(frozen=True)
class Average(Advantage):
    """The mean of a model column over the steps of a unit, the same on all of them.

    Parameters: `column` (without gradient; default `entropy_old`), `within` (default `traj`).
    Shapes: `[N]`. Reference: entropy of a sequence, 2503.22456 and 2508.03772. Its own piece
    because no other lets a model column stand where an advantage does.
    """

    column: str = "entropy_old"
    within: str = "traj"

    def __post_init__(self) -> None:
        known = self.column.endswith("_old") or self.column.startswith("ref.")
        require(known, self, "column", "a column before the update (NAME_old) or of a reference")
        require(self.within in LEVELS, self, "within", f"one of {', '.join(LEVELS)}")

    @property
    def needs(self) -> frozenset[str]:
        """The column."""
        return frozenset({self.column})

    def __call__(self, batch: Batch) -> Tensor:
        """The mean."""
        return batch.mean(batch[self.column].to(batch["reward"]), within=self.within)


@dataclass(frozen=True)
class Softmax(Advantage):
    """Weights of the units of a wider one that sum to 1: `w_i = exp(x_i/T) / Σ_j exp(x_j/T)`.

    Parameters: `temperature` (T, default 1), `over` (the units, default `traj`; x must be constant
    on each), `within` (default `group`), `rescale` (times the number of units, so that the mean
    weight is 1; default no). Use as `… >> Softmax()`. Shapes: `[N]`.
    Reference: EGSW, 2503.22456. Its own piece because weights elsewhere do not compete.
    """

    temperature: float = 1.0
    over: str = "traj"
    within: str = "group"
    rescale: bool = False

    def __post_init__(self) -> None:
        require(0 < self.temperature < math.inf, self, "temperature", "above 0 and finite")

    def __call__(self, batch: Batch) -> Tensor:
        """The weights."""
        x = batch["advantage"]
        raw = ((x - batch.max(x, self.within, self.over)) / self.temperature).exp()
        weight = raw / batch.sum(raw, self.within, self.over)
        return weight * batch.size(self.over, self.within).to(x) if self.rescale else weight
