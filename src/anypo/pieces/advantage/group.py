"""What a group says of its prompt: how often it is solved, how its answers spread."""

from __future__ import annotations

import math
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


def wants_groups(piece: Advantage, recipe: Recipe, least: int = 2) -> None:
    """Refuse recipes whose groups are smaller than what a piece compares."""
    if recipe.sampling.group < least:
        name, size = type(piece).__name__, recipe.sampling.group
        raise UsageError(
            f"{name} needs at least {least} trajectories per prompt, not {size}: raise the group"
        )


@dataclass(frozen=True)
class SolveRate(Advantage):
    """The share of a group's trajectories that are right, or wrong; the same on all of them.

    `ρ = (1/k) Σ_i 1[R_i ≥ least]`.

    Parameters: `least` (the outcome from which a trajectory is right, default 1; 0: any above 0),
    `kind` (`right`, default, or `wrong`: 1 − ρ). Shapes: `[N]`.
    Reference: difficulty weights, GRPO-LEAD, 2504.09696.
    """

    least: float = 1.0
    kind: Literal["right", "wrong"] = "right"

    def __post_init__(self) -> None:
        require(self.least >= 0, self, "least", "at least 0")
        require(self.kind in ("right", "wrong"), self, "kind", "right or wrong")

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two."""
        wants_groups(self, recipe)

    def __call__(self, batch: Batch) -> Tensor:
        """The share."""
        right = facts.right(batch, self.least).to(batch["reward"])
        return batch.mean(right if self.kind == "right" else 1 - right, "group", "traj")


@dataclass(frozen=True)
class Denoise(Advantage):
    """The weight of a group whose labels are flipped with some probability, from its solve rate q.

    `t = clip((q − p)/(1 − 2p), 0, 1)`, `w = (1 − 2p)·t(1 − t) / (√(q(1−q) + e)·√(t(1−t) + e))`: the
    factor for which the noisy z-score is nearest to the one without noise, in least squares.

    Parameters: `noise` (p in [0, ½), default 0.1), `eps` (e, default 1e-8). Use as
    `SolveRate(0) >> Denoise()`. Shapes: `[N]`. Reference: S-GRPO, 2508.05928. Its own piece because
    the formula is that of one noise model and of no other method.
    """

    noise: float = 0.1
    eps: float = 1e-8

    def __post_init__(self) -> None:
        require(0 <= self.noise < 0.5, self, "noise", "in [0, 0.5)")
        require(self.eps > 0, self, "eps", "above 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The weight."""
        seen, sharp = batch["advantage"], 1 - 2 * self.noise
        true = ((seen - self.noise) / sharp).clamp(0, 1)
        inner, outer = true * (1 - true), seen * (1 - seen)
        return sharp * inner / ((outer + self.eps).sqrt() * (inner + self.eps).sqrt())


@dataclass(frozen=True)
class BetaWeight(Advantage):
    """The inverse density of a Beta distribution at the group's mean reward.

    `w_g = min(cap, 1/f(p_g; α, β))` with p the mean reward mapped to [0, 1], `α = max(1, 1 + a/3)`,
    `β = max(1, 1 + b/3)`, and a, b the Beta parameters that match mean and variance (divisor K − 1)
    of p over the K groups of the batch: `a = c·m`, `b = c·(1 − m)`, `c = m(1 − m)/v − 1`.

    Parameters: `reward_min`, `reward_max` (what is mapped to 0 and 1, defaults 0 and 1),
    `weight_cap` (default 1e6).
    With one group, or with groups of equal means (where the published code gives NaN), the weight
    is 1. Shapes: `[N]`. Reference: BNPO, 2506.02864. Its own piece because it alone fits the spread
    of the whole batch's prompts.
    """

    reward_min: float = 0.0
    reward_max: float = 1.0
    weight_cap: float = 1e6

    def __post_init__(self) -> None:
        finite = math.isfinite(self.reward_min)
        require(finite, self, "reward_min", "finite")
        above = self.reward_min < self.reward_max < math.inf
        require(above, self, "reward_max", "above reward_min and finite")
        require(self.weight_cap >= 1, self, "weight_cap", "at least 1")

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two."""
        wants_groups(self, recipe)

    def __call__(self, batch: Batch) -> Tensor:
        """The weight."""
        outcome = batch.sum(batch["reward"], within="traj").double()
        span = self.reward_max - self.reward_min
        p = batch.mean((outcome - self.reward_min) / span, "group", "traj").clamp(0, 1)
        mean = batch.mean(p, "batch", "group")
        variance = batch.std(p, "batch", "group") ** 2
        known = variance > 0
        count = mean * (1 - mean) / torch.where(known, variance, torch.ones_like(p)) - 1
        alpha = (1 + count * mean / 3).clamp(min=1)
        beta = (1 + count * (1 - mean) / 3).clamp(min=1)
        log_norm = torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)
        log_density = torch.xlogy(alpha - 1, p) + torch.xlogy(beta - 1, 1 - p) - log_norm
        weight = (-log_density).exp().clamp(max=self.weight_cap)
        return torch.where(known, weight, torch.ones_like(p)).to(batch["reward"])


@dataclass(frozen=True)
class AnswerEntropy(Advantage):
    """How a group's answers spread over classes of equal meaning, in nats; the same on all of them.

    `H = −(1/k) Σ_i log p(c_i)`, p the share of the answers in class c; with `each="class"` every
    class counts once, however rare: `−(1/K) Σ_c log p(c)`.

    Parameters: `fact` (name of the class that a reward reports, default `cluster`), `each`
    (`answer`, default, or `class`), `relative` (divided by log k, its largest value; default no).
    One answer has entropy 0. Shapes: `[N]`. Reference: semantic entropy in SEED-GRPO, 2505.12346.
    Its own piece because it counts classes of answers, not tokens.
    """

    fact: str = "cluster"
    each: Literal["answer", "class"] = "answer"
    relative: bool = False

    def __post_init__(self) -> None:
        require(self.fact != "", self, "fact", "the name of a fact")
        require(self.each in ("answer", "class"), self, "each", "answer or class")

    @property
    def needs(self) -> frozenset[str]:
        """The class of every answer."""
        return frozenset({f"fact.{self.fact}"})

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two."""
        wants_groups(self, recipe)

    def __call__(self, batch: Batch) -> Tensor:
        """The entropy."""
        label = facts.label(batch, self.fact, "AnswerEntropy")
        named = Batch(batch.columns, {**batch.ids, "class": label})
        size = named.size("traj", "group")
        same = named.size("traj", ("group", "class"))
        weight = torch.ones_like(same) if self.each == "answer" else 1 / same
        surprise = named.sum(weight * (size / same).log(), "group", "traj")
        entropy = surprise / named.sum(weight, "group", "traj")
        if self.relative:
            entropy = torch.where(size > 1, entropy / size.clamp(min=2).log(), entropy)
        return entropy.to(batch["reward"])


@dataclass(frozen=True)
class Compensate(Advantage):
    """Scale up what has a signal by the share of what has none; `Baseline() >> Compensate()`.

    `A · α / divisor`, `α = #groups / #groups with an advantage`, so that prompts without a signal
    do not shrink the step.

    Parameters: `count` (`groups`, default; `rewards`: trajectories over those whose reward is not
    0, as verl counts), `divisor` (F_norm, default 1). Nothing to count leaves α at its largest.
    Shapes: `[N]`. Reference: GPG, 2504.02546. Its own piece because the factor counts advantages of
    the whole batch.
    """

    count: Literal["groups", "rewards"] = "groups"
    divisor: float = 1.0

    def __post_init__(self) -> None:
        require(self.count in ("groups", "rewards"), self, "count", "groups or rewards")
        require(0 < self.divisor < math.inf, self, "divisor", "above 0 and finite")

    def __call__(self, batch: Batch) -> Tensor:
        """The scaled advantage."""
        value = batch["advantage"]
        unit = "group" if self.count == "groups" else "traj"
        outcome = batch.sum(batch["reward"], within="traj")
        signal = batch.max(value.abs(), "group") if self.count == "groups" else outcome
        alive = batch.sum((signal != 0).to(value), "batch", unit).clamp(min=1)
        return value * batch.size(unit, "batch").to(value) / alive / self.divisor
