"""Outcome minus a baseline over other trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Advantage, require

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe

SCALES = ("off", "std", "batch", "mean")
CENTRES = ("mean", "median", "soft", "off")
WEIGHTS = ("", "length", "score_norm")


@dataclass(frozen=True)
class Baseline(Advantage):
    """The outcome of each `over` unit, centred and optionally scaled within a wider unit.

    `A = (R − centre − shift) / (sd + eps)` with `R = Σ reward` of the unit; with `leave_one_out`
    the mean is that of the other units, `A = k/(k−1) · (R − mean)`. Every step of the unit gets the
    same value.

    Parameters
    ----------
    over : the unit with an outcome (default `traj`).
    within : the unit that shares a baseline (`group`, or `batch`), or several that cross.
    scale : `off`; `std` (standard deviation within `within`); `batch` (over the whole batch);
        `mean` (the mean within `within`).
    leave_one_out : baseline without the unit itself (RLOO).
    eps : added to the divisor (default 1e-6: verl; TRL has 1e-4).
    ddof : 1 divides by k − 1 (verl, TRL), 0 by k (Flow-GRPO).
    limit : the result is clamped to ±limit (default ∞).
    centre : `mean`, `median`, `soft` (`tau · log mean exp(R/tau)`), `off`.
    tau : temperature of the soft centre (→ 0 is the largest, → ∞ the mean; default 1).
    shift : added to the centre (default 0).
    weight : of each unit in a mean: `""` (equal), `length` (its steps), or the column
        `score_norm` (squared norm of its score, ‖∇ Σ logp‖²).
    fact : name of a number per trajectory that stands in for the reward (default the reward).
    among : `all`, or `correct`: only units whose `score` is at least 1 are compared, and the rest
        get 0.

    A unit whose outcome is NaN (not scorable) gets 0, and the others form the group without it. A
    group of one, or with equal outcomes, gives exactly 0, unless it is not centred on itself
    (`centre="off"`, `shift`). Raises when the recipe samples one trajectory per prompt and the
    baseline is a group's, and for options that act on nothing. Shapes: `[N]`.
    Reference: DeepSeekMath, 2402.03300; leave-one-out, 2402.14740; weights, 2511.23310.
    """

    over: str = "traj"
    within: str | tuple[str, ...] = "group"
    scale: Literal["off", "std", "batch", "mean"] = "off"
    leave_one_out: bool = False
    eps: float = 1e-6
    ddof: int = 1
    limit: float = float("inf")
    centre: Literal["mean", "median", "soft", "off"] = "mean"
    tau: float = 1.0
    shift: float = 0.0
    weight: Literal["", "length", "score_norm"] = ""
    fact: str = ""
    among: Literal["all", "correct"] = "all"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def needs(self) -> frozenset[str]:
        """`score_norm` when it weighs, and the fact that stands in for the reward."""
        weight = {"score_norm"} if self.weight == "score_norm" else set()
        return frozenset(weight | ({f"fact.{self.fact}"} if self.fact else set()))

    def check(self, recipe: Recipe) -> None:
        """A group baseline wants groups."""
        if "group" in _names(self.within) and recipe.sampling.group < 2 and self.centre != "off":
            raise UsageError(
                "a group baseline needs at least 2 trajectories per prompt; raise the group size"
            )

    def __call__(self, batch: Batch) -> Tensor:
        """The centred outcome."""
        outcome = outcome_of(batch, self.over, self.fact)
        known = ~outcome.isnan()
        if self.among == "correct":
            known = known & (batch.sum(batch["score"], within="traj") >= 1)
        out = torch.zeros_like(outcome)
        if bool(known.any()):
            value = _compared(self, batch.take(known), outcome[known])
            out[known] = value.clamp(-self.limit, self.limit)
        return out


def outcome_of(batch: Batch, over: str, fact: str = "") -> Tensor:
    """Summed reward of each unit, or a numeric fact of its trajectory; `[N]`.

    That of a group is the mean over its trajectories, so that groups of any size compare.
    """
    if fact:
        return facts.number(batch, fact, "Baseline").to(batch["reward"])
    total = batch.sum(batch["reward"], within=over)
    return total / batch.size("traj", "group").to(total) if over == "group" else total


def _check(piece: Baseline) -> None:
    require(piece.scale in SCALES, piece, "scale", f"one of {', '.join(SCALES)}")
    require(piece.centre in CENTRES, piece, "centre", f"one of {', '.join(CENTRES)}")
    require(piece.weight in WEIGHTS, piece, "weight", "empty, length or score_norm")
    require(piece.among in ("all", "correct"), piece, "among", "all or correct")
    require(piece.eps >= 0, piece, "eps", "at least 0")
    require(piece.tau > 0, piece, "tau", "above 0")
    require(piece.ddof in (0, 1), piece, "ddof", "0 or 1")
    require(piece.limit > 0, piece, "limit", "above 0")
    plain = piece.centre == "mean" and not piece.weight
    require(plain or not piece.leave_one_out, piece, "leave_one_out", "off, unless it is of a mean")
    require(piece.centre == "mean" or not piece.weight, piece, "weight", "empty, unless of a mean")


def _names(within: str | tuple[str, ...]) -> tuple[str, ...]:
    return (within,) if isinstance(within, str) else tuple(within)


def _compared(piece: Baseline, batch: Batch, value: Tensor) -> Tensor:
    over, within = piece.over, piece.within
    centred = value - _centre(piece, batch, value) - piece.shift
    if piece.leave_one_out:
        count = batch.size(over, within).to(value)
        centred = centred * count / (count - 1).clamp(min=1)
    if piece.scale == "mean":
        divisor = batch.mean(value, within, over)
    else:
        divisor = batch.std(value, "batch" if piece.scale == "batch" else within, over, piece.ddof)
    scaled = centred if piece.scale == "off" else centred / (divisor + piece.eps)
    if piece.centre == "off" or piece.shift:
        return torch.where(scaled.isfinite(), scaled, torch.zeros_like(scaled))
    # A rounded mean of equal outcomes is not exactly their value.
    equal = batch.max(value, within, over) == batch.min(value, within, over)
    return torch.where(equal, torch.zeros_like(scaled), scaled)


def _centre(piece: Baseline, batch: Batch, value: Tensor) -> Tensor:
    over, within = piece.over, piece.within
    if piece.centre == "off":
        return torch.zeros_like(value)
    if piece.centre == "median":
        return batch.quantile(value, 0.5, within, over)
    if piece.centre == "soft":
        top = batch.max(value, within, over)
        mean = batch.mean(((value - top) / piece.tau).exp(), within, over)
        return top + piece.tau * mean.log()
    if not piece.weight:
        return batch.mean(value, within, over)
    weight = batch.size("step", over) if piece.weight == "length" else batch["score_norm"]
    weight = weight.to(value)
    total = batch.sum(weight, within, over)
    mean = batch.sum(weight * value, within, over) / total
    return torch.where(total > 0, mean, batch.mean(value, within, over))
