"""Credit of single places: the end of a thought, a step that mattered, a fork of two answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Advantage, require


@dataclass(frozen=True)
class Economy(Advantage):
    """Credit of a right answer's end of thought by how much of the thought was needed.

    `coef · (1 − V/(T + eps))` on the token that ends the thought, T the thought's tokens, V those
    up to the first right answer in it; `−coef` if that never came (V = 0); 0 on all other tokens.

    Parameters: `coef` (default 1), `least` (the score from which an answer is right, default 1),
    `eps` (default 1e-4). A reward reports `think_end` (place of the token, from 0), `think_length`
    (T; 0: no end of thought) and `valid_length` (V). Shapes: `[N]`. Reference: LC-R1, 2506.14755.
    Its own piece because it is credit of one token, outside the group's baseline.
    """

    coef: float = 1.0
    least: float = 1.0
    eps: float = 1e-4

    def __post_init__(self) -> None:
        require(0 <= self.coef < math.inf, self, "coef", "at least 0 and finite")
        require(self.least >= 0, self, "least", "at least 0")
        require(self.eps >= 0, self, "eps", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """Where the thought ends, how long it is, and how long it had to be."""
        return frozenset({"fact.think_end", "fact.think_length", "fact.valid_length"})

    def __call__(self, batch: Batch) -> Tensor:
        """The credit."""
        names = ("think_end", "think_length", "valid_length")
        end, length, valid = (facts.number(batch, name, "Economy") for name in names)
        right = facts.right(batch.with_({"reward": batch["score"]}), self.least)
        place = batch.size("step", "traj") - batch.scan(torch.ones_like(end), 1.0)
        there = right & (length > 0) & (place == end)
        saved = torch.where(valid > 0, 1 - valid / (length + self.eps), -1.0)
        return torch.where(there, self.coef * saved, 0.0).to(batch["reward"])


@dataclass(frozen=True)
class Excess(Advantage):
    """What a right answer is too long, shared out among its segments, most to unimportant ones.

    `q_k = max(0, n − m)/m · exp(−s_k/tau)/Σ_j exp(−s_j/tau)`, m the mean length of the group's
    right answers, s_k the importance of segment k; the same on all steps of a segment. Wrong
    answers have none.

    Parameters: `tau` (default 1), `fact` (name of the list of s, default `importance`; a segment
    beyond the list has 0), `least` (the score from which an answer is right, default 1).
    Raises `UsageError` without segments (see `Split`). Shapes: `[N]`. Reference: 2603.00296, whose
    formula is not known; this one is ours, and hence its own piece.
    """

    tau: float = 1.0
    fact: str = "importance"
    least: float = 1.0

    def __post_init__(self) -> None:
        require(0 < self.tau < math.inf, self, "tau", "above 0 and finite")
        require(self.fact != "", self, "fact", "the name of a fact")
        require(self.least >= 0, self, "least", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """The importance of the segments."""
        return frozenset({f"fact.{self.fact}"})

    def __call__(self, batch: Batch) -> Tensor:
        """The shares."""
        if "segment" not in batch.ids:
            raise UsageError("Excess needs segments: add Split() to the sampling")
        importance, n = self._importance(batch), batch.size("step", "traj")
        right = facts.right(batch.with_({"reward": batch["score"]}), self.least).double()
        count = batch.sum(right, "group", "traj")
        mean = batch.sum(n * right, "group", "traj") / count.clamp(min=1)
        excess = torch.where(right > 0, (n / mean - 1).clamp(min=0), 0.0)
        low = batch.min(importance, "traj", "segment")
        raw = ((low - importance) / self.tau).exp()
        return (excess * raw / batch.sum(raw, "traj", "segment")).to(batch["reward"])

    def _importance(self, batch: Batch) -> Tensor:
        lists = [x or [] for x in facts.values(batch, self.fact, "Excess")]
        pairs = zip(batch.id("traj").tolist(), batch.id("stage").tolist(), strict=True)
        found = [float(lists[i][k]) if k < len(lists[i]) else 0.0 for i, k in pairs]
        return torch.tensor(found, dtype=torch.float64)


@dataclass(frozen=True)
class Transition(Advantage):
    """The outcome of answers that took a token, against that of all that came to where it was
    taken.

    `A = mean_{edge} R − mean_{node} R`: 0 wherever all answers went the same way, so that only
    forks have credit. It has no parameters, and needs the ids of `Tree`. Shapes: `[N]`.
    Reference: T-SPMO, 2504.20834. Its own piece because no other baseline is that of a prefix.
    """

    def __call__(self, batch: Batch) -> Tensor:
        """The credit."""
        outcome = batch.sum(batch["reward"], within="traj")
        gap = batch.mean(outcome, "edge") - batch.mean(outcome, "node")
        # Rounded means of equal outcomes need not be equal.
        equal = batch.max(outcome, "node") == batch.min(outcome, "node")
        one_way = batch.size("step", "edge") == batch.size("step", "node")
        return torch.where(equal | one_way, torch.zeros_like(gap), gap)
