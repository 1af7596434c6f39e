"""Objectives that compare the trajectories of a group: regression and preference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.nn import functional

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Off, Surrogate, require
from anypo.pieces.surrogate.clip import clipped

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


def _check_groups(piece: Surrogate, recipe: Recipe, least: int, most: float) -> None:
    size, name = recipe.sampling.group, type(piece).__name__
    if not least <= size <= most:
        wanted = f"exactly {least}" if least == most else f"at least {least}"
        raise UsageError(
            f"{name} needs {wanted} trajectories per prompt, not {size}: set the group"
        )
    if recipe.ratio.couples != "traj":
        raise UsageError(f'{name} compares whole trajectories: use ratio=Ratio("traj")')


@dataclass(frozen=True)
class GroupRegression(Surrogate):
    """Regress log-ratio differences on reward differences within a group.

    `x_i = beta·h_i − eta·A_i`, `objective_i = −scale · k/(k−1) · (x_i − mean_group x)²`, with h the
    trajectory's summed log-ratio, k the trajectories of the group. A mean over the group is then
    `scale` times the unbiased variance of x: GVPO is `scale=1/2`. For a pair it is
    `scale/2 · (x_1 − x_2)²`: REBEL is `scale=2`. Rewards need no centring: only differences count.

    Parameters: `beta` (weight of the log-ratio), `eta` (weight of the reward), `scale`.
    A group of one contributes 0. Couples the group. Shapes: `[N]`, constant on a trajectory.
    Reference: GVPO, 2504.19599; REBEL, 2404.16767.
    """

    beta: float = 1.0
    eta: float = 1.0
    scale: float = 0.5

    def __post_init__(self) -> None:
        require(self.beta > 0, self, "beta", "above 0")
        require(self.eta > 0, self, "eta", "above 0")
        require(self.scale > 0, self, "scale", "above 0")

    @property
    def couples(self) -> str:
        """The group."""
        return "group"

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two whole trajectories."""
        _check_groups(self, recipe, 2, float("inf"))

    def __call__(self, batch: Batch) -> Tensor:
        """The negative squared residual of each trajectory."""
        x = self.beta * batch["log_ratio"] - self.eta * batch["advantage"]
        residual = x - batch.mean(x, over="traj", within="group")
        count = batch.size("traj", within="group").to(x)
        bessel = torch.where(count > 1, count / (count - 1).clamp(min=1), torch.zeros_like(count))
        return -self.scale * bessel * residual**2


@dataclass(frozen=True)
class Regression(Surrogate):
    """Regress the log-ratio of every step's unit on its advantage: `−scale · (beta·h − eta·A)²`.

    `h` is what the ratio piece gives: a token's log-ratio (APA), the answer's summed or mean one
    (A*-PO, SPPO), or one standardised within its group (Reg-GRPO).

    Parameters: `beta` (weight of the log-ratio, default 1), `eta` (weight of the advantage, default
    1), `scale` (default 1). Couples what the ratio couples. Shapes: `[N]`.
    Reference: APA, 2306.02231; A*-PO, 2505.20686; SPPO, 2405.00675.
    """

    beta: float = 1.0
    eta: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        require(self.beta > 0, self, "beta", "above 0")
        require(self.eta > 0, self, "eta", "above 0")
        require(self.scale > 0, self, "scale", "above 0")

    def check(self, recipe: Recipe) -> None:
        """There must be a log-ratio to regress."""
        if isinstance(recipe.ratio, Off):
            raise UsageError("Regression fits a log-ratio: give the recipe a ratio to a reference")

    def __call__(self, batch: Batch) -> Tensor:
        """The negative squared residual."""
        residual = self.beta * batch["log_ratio"] - self.eta * batch["advantage"]
        return -self.scale * residual**2


@dataclass(frozen=True)
class Preference(Surrogate):
    """A loss on the margin of a preferred over a rejected trajectory.

    `Δ = h_chosen − h_rejected`, h the trajectory's log-ratio. `logistic`:
    `objective = (1−e)·log σ(β·Δ) + e·log σ(−β·Δ)`. `squared`: `objective = −(Δ − 1/(2β))²`.
    Of the two trajectories of a group the one with the larger advantage is the chosen one; a tie
    has no preference and contributes 0.

    Parameters: `beta` (default 0.1), `smoothing` (e in [0, 1/2), default 0; logistic only), `form`,
    `margin` (name of a number of each pair by which `β·Δ` is to exceed 0, where the data or a
    reward give it: `log σ(β·Δ − m)`; default none; without smoothing only).
    Raises when a group has not exactly two trajectories. Couples the group. Shapes: `[N]`, constant
    on a group. Reference: DPO, 2305.18290; squared, IPO, 2310.12036; margin, Llama 2, 2307.09288.
    """

    beta: float = 0.1
    smoothing: float = 0.0
    form: Literal["logistic", "squared"] = "logistic"
    margin: str = ""

    def __post_init__(self) -> None:
        require(self.beta > 0, self, "beta", "above 0")
        require(0 <= self.smoothing < 0.5, self, "smoothing", "in [0, 0.5)")
        plain = self.form == "logistic" and not self.smoothing
        require(
            plain or not self.margin, self, "margin", "empty, unless logistic without smoothing"
        )
        require(self.form in ("logistic", "squared"), self, "form", "logistic or squared")
        smooth = self.form == "squared" and self.smoothing
        require(not smooth, self, "smoothing", "0, unless the form is logistic")

    @property
    def couples(self) -> str:
        """The group."""
        return "group"

    def check(self, recipe: Recipe) -> None:
        """Pairs of whole trajectories."""
        _check_groups(self, recipe, 2, 2)

    def __call__(self, batch: Batch) -> Tensor:
        """The log-likelihood of the preference, or the negative squared distance to its target."""
        _check_pairs(self, batch)
        sign = torch.sign(_centred(batch, batch["advantage"]))
        margin = 2 * sign * _centred(batch, batch["log_ratio"])
        if self.form == "squared":
            objective = -((margin - 1 / (2 * self.beta)) ** 2)
        else:
            right = functional.logsigmoid(self.beta * margin - self._least(batch))
            wrong = functional.logsigmoid(-self.beta * margin)
            objective = (1 - self.smoothing) * right + self.smoothing * wrong
        return torch.where(sign == 0, torch.zeros_like(objective), objective)

    def _least(self, batch: Batch) -> Tensor | float:
        known = self.margin and self.margin in batch.table("traj")
        return facts.number(batch, self.margin, "Preference") if known else 0.0


@dataclass(frozen=True)
class PairClip(Surrogate):
    """PPO's clip of one ratio for two answers: that of the first over that of the second.

    `objective = ½ · min(q·A, clip(q, 1−low, 1+high)·A)` with `log q = h_1 − h_2` and
    `A = (A_1 − A_2)/2`, which is `R_1 − R_2` for leave-one-out advantages. The clip treats the two
    differently, so which is first is drawn by `lot`, once for each pair and without regard to
    order, rewards or probabilities. It is its own piece because its ratio belongs to a pair.

    Parameters: `low`, `high` (distance of the bounds from 1, default 0.2). Raises when a group has
    not exactly two trajectories. Couples the group. Shapes: `[N]`, constant on a group.
    Reference: P3O, 2310.00212.
    """

    low: float = 0.2
    high: float = 0.2

    def __post_init__(self) -> None:
        require(0 <= self.low <= 1, self, "low", "between 0 and 1")
        require(self.high >= 0, self, "high", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """`lot`."""
        return frozenset({"lot"})

    @property
    def couples(self) -> str:
        """The group."""
        return "group"

    def check(self, recipe: Recipe) -> None:
        """Pairs of whole trajectories."""
        _check_groups(self, recipe, 2, 2)

    def __call__(self, batch: Batch) -> Tensor:
        """Half the clipped objective of the pair."""
        _check_pairs(self, batch)
        lot = batch.max(batch["lot"], within="traj")
        sign = -torch.sign(_centred(batch, lot)).to(batch["log_ratio"])
        ratio = (2 * sign * _centred(batch, batch["log_ratio"])).exp()
        advantage = sign * _centred(batch, batch["advantage"])
        return clipped(ratio, advantage, 1 - self.low, 1 + self.high, float("inf")) / 2


def _check_pairs(piece: Surrogate, batch: Batch) -> None:
    if bool((batch.size("traj", within="group") != 2).any()):
        name = type(piece).__name__
        raise UsageError(f"{name} compares pairs: every group must have two trajectories")


def _centred(batch: Batch, x: Tensor) -> Tensor:
    return x - batch.mean(x, over="traj", within="group")
