"""Rewards of an answer's length against a budget, the group's right answers, or a target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Reward, require


def lengths(batch: Batch) -> Tensor:
    """Steps of each trajectory, or the column `length` where a rollout records it; `[N]`."""
    n = batch["length"] if "length" in batch else batch.size("step", "traj")
    return n.to(batch["reward"])


@dataclass(frozen=True)
class Shorter(Reward):
    """Add what an answer leaves of a length: `reward_last += weight · (1 − n/(L + eps))`.

    Parameters
    ----------
    weight : default 1; below 0 long answers earn more.
    than : L: `longest`, the group's longest right answer, or `horizon`, the run's budget.
    groups : which groups count: `all`, `some` (with a right answer) or `solved` (all are right).
    least : the outcome from which an answer is right (default 1; 0: any above 0).
    eps : default 0.

    Groups without a right answer earn nothing from `longest`. Raises `UsageError` when no budget is
    known. Shapes: `[N]`. Reference: LC-R1, 2506.14755; all-correct groups, ConciseR, 2505.21178.
    Its own piece because it pays by the length alone.
    """

    weight: float = 1.0
    than: Literal["longest", "horizon"] = "longest"
    groups: Literal["all", "some", "solved"] = "some"
    least: float = 1.0
    eps: float = 0.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.weight), self, "weight", "finite")
        require(self.than in ("longest", "horizon"), self, "than", "longest or horizon")
        known = self.groups in ("all", "some", "solved")
        require(known, self, "groups", "all, some or solved")
        require(self.least >= 0, self, "least", "at least 0")
        require(self.eps >= 0, self, "eps", "at least 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        reward, n = batch["reward"], lengths(batch)
        right = facts.right(batch, self.least).to(reward)
        share = batch.mean(right, "group", "traj")
        counts = {"all": share >= 0, "some": share > 0, "solved": share == 1}[self.groups]
        longest = batch.max(n * right, "group", "traj")
        limit = longest if self.than == "longest" else _horizon(batch)
        bonus = self.weight * (1 - n / (limit + self.eps))
        return torch.where(batch.last("traj") & counts & (limit > 0), reward + bonus, reward)


def _horizon(batch: Batch) -> Tensor:
    table = batch.table("traj")
    if "horizon" not in table:
        raise UsageError("Shorter needs a budget: use it in a run, or take than=longest")
    return batch.spread("traj", torch.as_tensor(table["horizon"])).to(batch["reward"])


@dataclass(frozen=True)
class Near(Reward):
    """Right answers earn more, the nearer their length is to a range or to their prompt's target.

    `reward_last += weight · max(0, 1 − d/slope)`, d the distance to the range between two
    percentiles of the lengths of the group's right answers (nothing if it is a single length); or
    `weight · exp(−d²/(2·sigma²))`, d the distance to the prompt's target, if there is one, else
    to the range.

    Parameters
    ----------
    weight : default 0.7.
    pct_low, pct_high : percentiles, by linear interpolation (defaults 30 and 70).
    slope : tokens over which the reward falls to 0 (default 100; 0: the bell of `sigma`).
    sigma : width of the bell in tokens (default 0: off). One of the two is 0.
    sentinel : a target of this value says that there is none (default 0: unknown ones are NaN).
    least : the outcome from which an answer is right (default 1).

    State: `length_target`, for each prompt the median length of its right answers when it was last
    solved; the bell only lowers it. A column `length` stands for the number of steps.
    Shapes: `[N]`. Reference: LAPO, 2507.15758. Its own piece because its targets are kept.
    """

    weight: float = 0.7
    pct_low: float = 30.0
    pct_high: float = 70.0
    slope: float = 100.0
    sigma: float = 0.0
    sentinel: float = 0.0
    least: float = 1.0

    def __post_init__(self) -> None:
        _check(self)

    def init(self) -> dict[str, Any]:
        """No prompt was solved yet."""
        return {"length_target": {}}

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        reward, right = batch["reward"], facts.right(batch, self.least)
        if not bool(right.any()):
            return reward
        solved, n = batch.take(right), lengths(batch)[right]
        low, high = (
            solved.quantile(n, q / 100, "group", "traj") for q in (self.pct_low, self.pct_high)
        )
        if self.sigma:
            target = solved["length_target"].to(n)
            known = ~target.isnan() & (target != self.sentinel)
            low, high = torch.where(known, target, low), torch.where(known, target, high)
        distance = torch.maximum(low - n, n - high).clamp(min=0)
        closeness = self._closeness(distance, low < high)
        out = reward.clone()
        out[right] = torch.where(
            solved.last("traj"), reward[right] + self.weight * closeness, reward[right]
        )
        return out

    def _closeness(self, distance: Tensor, wide: Tensor) -> Tensor:
        if self.sigma:
            return (-(distance**2) / (2 * self.sigma**2)).exp()
        return torch.where(wide, (1 - distance / self.slope).clamp(min=0), 0.0)

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """The medians of the prompts that were solved."""
        return {**state, "length_target": _targets(self, batch, state["length_target"])}


def _check(piece: Near) -> None:
    require(0 <= piece.weight < math.inf, piece, "weight", "at least 0 and finite")
    require(0 <= piece.pct_low <= piece.pct_high, piece, "pct_low", "between 0 and pct_high")
    require(piece.pct_high <= 100, piece, "pct_high", "at most 100")
    require(0 <= piece.slope < math.inf, piece, "slope", "at least 0 and finite")
    one = 0 <= piece.sigma < math.inf and (piece.sigma > 0) != (piece.slope > 0)
    require(one, piece, "sigma", "0 with a slope, and above 0 and finite without")
    require(piece.sentinel >= 0, piece, "sentinel", "at least 0")
    require(piece.least >= 0, piece, "least", "at least 0")


def _targets(piece: Near, batch: Batch, known: dict[str, float]) -> dict[str, float]:
    score = batch.columns.get("score", batch.columns.get("reward"))
    if score is None:
        return known
    right = facts.right(batch.with_({"reward": score}), piece.least)
    if not bool(right.any()):
        return known
    solved, n = batch.take(right), lengths(batch)[right].double()
    median = solved.quantile(n, 0.5, "prompt", "traj")
    found = dict(zip(map(str, solved.id("prompt").tolist()), median.tolist(), strict=True))
    lower = {p: min(x, known[p]) for p, x in found.items() if p in known and piece.sigma}
    return known | found | lower
