"""Outcome minus a baseline over other trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Advantage, require

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class Baseline(Advantage):
    """The outcome of each `over` unit, centred and optionally scaled within a wider unit.

    `A = (R − mean) / (sd + eps)` with `R = Σ reward` of the unit; with `leave_one_out` the mean is
    that of the other units, `A = k/(k−1) · (R − mean)`. Every step of the unit gets the same value.

    Parameters
    ----------
    over : the unit with an outcome (default `traj`).
    within : the unit that shares a baseline (`group`, or `batch`).
    scale : `off`; `std` (standard deviation within `within`); `batch` (over the whole batch).
    leave_one_out : baseline without the unit itself (RLOO).
    eps : added to the standard deviation (default 1e-6: verl; TRL has 1e-4).
    ddof : 1 divides by k − 1 (verl, TRL), 0 by k (Flow-GRPO).
    limit : the result is clamped to ±limit (default ∞).

    A unit whose outcome is NaN (not scorable) gets 0, and the others form the group without it. A
    group of one, or with equal outcomes, gives exactly 0. Raises when the recipe samples one
    trajectory per prompt and the baseline is a group's. Shapes: `[N]`.
    Reference: DeepSeekMath, 2402.03300; leave-one-out, 2402.14740.
    """

    over: str = "traj"
    within: str = "group"
    scale: Literal["off", "std", "batch"] = "off"
    leave_one_out: bool = False
    eps: float = 1e-6
    ddof: int = 1
    limit: float = float("inf")

    def __post_init__(self) -> None:
        require(self.scale in ("off", "std", "batch"), self, "scale", "off, std or batch")
        require(self.eps >= 0, self, "eps", "at least 0")
        require(self.ddof in (0, 1), self, "ddof", "0 or 1")
        require(self.limit > 0, self, "limit", "above 0")

    def check(self, recipe: Recipe) -> None:
        """A group baseline wants groups."""
        if self.within == "group" and recipe.sampling.group < 2:
            raise UsageError(
                "a group baseline needs at least 2 trajectories per prompt; raise the group size"
            )

    def __call__(self, batch: Batch) -> Tensor:
        """The centred outcome."""
        outcome = batch.sum(batch["reward"], within=self.over)
        known = ~outcome.isnan()
        rest, value = batch.take(known), outcome[known]
        out = torch.zeros_like(outcome)
        if len(rest):
            out[known] = self._centred(rest, value).clamp(-self.limit, self.limit)
        return out

    def _centred(self, batch: Batch, value: Tensor) -> Tensor:
        spread = batch.std(value, self.within, self.over, self.ddof)
        centred = value - batch.mean(value, self.within, self.over)
        if self.leave_one_out:
            count = batch.size(self.over, self.within).to(value)
            centred = centred * count / (count - 1).clamp(min=1)
        # A rounded mean of equal outcomes is not exactly their value.
        equal = batch.max(value, self.within, self.over) == batch.min(value, self.within, self.over)
        if self.scale != "off":
            wide = batch.std(value, "batch", self.over, self.ddof)
            centred = centred / ((spread if self.scale == "std" else wide) + self.eps)
        return torch.where(equal, torch.zeros_like(centred), centred)
