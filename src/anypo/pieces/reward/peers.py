"""Rewards that say right or wrong, and what the other answers of a group make of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.piece import Reward, require


@dataclass(frozen=True)
class Verdict(Reward):
    """One number for right answers, another for wrong ones, and a cost of what a judge finds.

    Right: `right − penalty · x`, x the fact; wrong: `wrong`. It stands on the last step.

    Parameters: `right` (default 1), `wrong` (default −1), `least` (the outcome from which an answer
    is right, default 1; 0: any above 0), `fact` (name of a flag or number that a reward reports,
    default none), `penalty` (its cost, default 1). Shapes: `[N]`. Reference: FAPO, 2510.22543. Its
    own piece because a judge's flag counts for right answers only.
    """

    right: float = 1.0
    wrong: float = -1.0
    least: float = 1.0
    fact: str = ""
    penalty: float = 1.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.right), self, "right", "finite")
        require(-math.inf < self.wrong <= self.right, self, "wrong", "at most right, and finite")
        require(self.least >= 0, self, "least", "at least 0")
        require(0 <= self.penalty < math.inf, self, "penalty", "at least 0 and finite")

    @property
    def needs(self) -> frozenset[str]:
        """The fact, if any."""
        return frozenset({f"fact.{self.fact}"} if self.fact else ())

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        reward = batch["reward"]
        value = torch.full_like(reward, self.right)
        if self.fact:
            value = value - self.penalty * facts.number(batch, self.fact, "Verdict").to(reward)
        value = torch.where(facts.right(batch, self.least), value, self.wrong)
        return torch.where(batch.last("traj"), value, 0.0)


@dataclass(frozen=True)
class Rare(Reward):
    """Lower the rewards of likely answers: `reward · (1 − beta_rank · rank/G)`.

    `rank` is the number of answers of the group whose mean log-probability per token, before the
    update, is smaller: the least likely one keeps its reward.

    Parameters: `beta_rank` (default 0.25). Answers of equal likelihood share their mean rank, where
    the published code goes by their order. Shapes: `[N]`. Reference: 2506.02355. Its own piece
    because no other reward asks how likely an answer was among its peers.
    """

    beta_rank: float = 0.25

    def __post_init__(self) -> None:
        require(0 <= self.beta_rank <= 1, self, "beta_rank", "between 0 and 1")

    @property
    def needs(self) -> frozenset[str]:
        """`logp_old`, unless nothing is lowered."""
        return frozenset({"logp_old"} if self.beta_rank else ())

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        reward = batch["reward"]
        if not self.beta_rank:
            return reward
        rank = batch.rank(batch.mean(batch["logp_old"].double(), "traj"), "group", "traj")
        share = rank / batch.size("traj", "group")
        return reward * (1 - self.beta_rank * share).to(reward)


@dataclass(frozen=True)
class Helpful(Reward):
    """Reward what an answer does, if those of its group that do it are more often right.

    `reward_last += weight · s · x`, x whether the answer does it, `s = 1` if the accuracy of those
    with x exceeds that of those without by more than `band`, −1 if it falls short by more, else 0.

    Parameters: `fact` (name of x, default `construction`), `weight` (default 1), `band` (default
    0.1), `least` (the outcome from which an answer is right, default 1). In a group in which all
    do it, or none, s is 0. Shapes: `[N]`. Reference: GeometryZero, 2506.07160, whose second group
    of answers is here a part of the one. Its own piece because its sign is a group's experience.
    """

    fact: str = "construction"
    weight: float = 1.0
    band: float = 0.1
    least: float = 1.0

    def __post_init__(self) -> None:
        require(self.fact != "", self, "fact", "the name of a fact")
        require(0 <= self.weight < math.inf, self, "weight", "at least 0 and finite")
        require(0 <= self.band <= 1, self, "band", "between 0 and 1")
        require(self.least >= 0, self, "least", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """The fact."""
        return frozenset({f"fact.{self.fact}"})

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        reward, right = batch["reward"], facts.right(batch, self.least).double()
        does = (facts.number(batch, self.fact, "Helpful") > 0).double()
        count, size = batch.sum(does, "group", "traj"), batch.size("traj", "group")
        solved = batch.sum(right * does, "group", "traj")
        rest = batch.sum(right, "group", "traj") - solved
        gap = solved / count.clamp(min=1) - rest / (size - count).clamp(min=1)
        sign = (gap > self.band).double() - (gap < -self.band).double()
        sign = torch.where((count > 0) & (count < size), sign, 0.0)
        bonus = (self.weight * sign * does).to(reward)
        return torch.where(batch.last("traj"), reward + bonus, reward)
