"""Answers at another temperature, which push the policy's entropy towards a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from anypo.core.batch import Batch
from anypo.core.piece import Sampling, require
from anypo.core.request import Request


@dataclass(frozen=True)
class Steer(Sampling):
    """Ask again for a share of the prompts, hotter or colder, and keep the right answers of those.

    The second request has `high` times the temperature while the mean entropy H of the last batch
    is at most `target`, and `low` times it above. Its steps have the column `control` = 1, all
    others 0. Of its answers those with a score of at least 1 stay, and of them at most `most`
    (half as many while H is above the target), drawn by lot.

    Parameters
    ----------
    target : H0 in nats per token (default 0.5). high, low : factors (defaults 1.2 and 0.8).
    share : of the prompts of an iteration, rounded up (default 1/4).
    most : answers kept (default 60).

    State: `mean_entropy`, the last batch's mean over its steps at the plain temperature; 0 at
    first. It is its own piece because no other asks for what the entropy says.
    Shapes: the column `[N]`. Reference: AEPO, 2510.08141.
    """

    target: float = 0.5
    high: float = 1.2
    low: float = 0.8
    share: float = 0.25
    most: int = 60

    def __post_init__(self) -> None:
        require(self.target >= 0, self, "target", "at least 0")
        require(self.high >= 1, self, "high", "at least 1")
        require(0 < self.low <= 1, self, "low", "above 0 and at most 1")
        require(0 < self.share <= 1, self, "share", "above 0 and at most 1")
        require(self.most >= 1, self, "most", "at least 1")

    @property
    def needs(self) -> frozenset[str]:
        """`entropy_old`."""
        return frozenset({"entropy_old"})

    def init(self) -> dict[str, Any]:
        """No entropy seen yet."""
        return {"mean_entropy": 0.0}

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """What is wanted, then the share of it at the other temperature."""
        if rounds == 0:
            return replace(wanted, tags={**wanted.tags, "control": 0.0})
        factor = self.high if wanted.state["mean_entropy"] <= self.target else self.low
        hot = {"temperature": wanted.temperature * factor, "tags": {**wanted.tags, "control": 1.0}}
        prompts = -int(-self.share * wanted.prompts // 1)
        return replace(wanted, prompts=prompts, **hot) if rounds == 1 else None

    def keep(self, batch: Batch) -> Batch:
        """All plain answers, and some right ones of the others."""
        return _drawn(self, batch) if len(batch) else batch

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """The entropy of the plain answers."""
        plain = batch["control"] == 0 if len(batch) else torch.zeros(0).bool()
        if not bool(plain.any()):
            return state
        return {**state, "mean_entropy": float(batch["entropy_old"][plain].double().mean())}


def _drawn(piece: Steer, batch: Batch) -> Batch:
    right = batch.sum(batch["score"], within="traj") >= 1
    batch = batch.take((batch["control"] == 0) | right)
    if not len(batch):
        return batch
    plain = batch["control"] == 0
    lot = batch.max(batch["lot"], within="traj").masked_fill(plain, torch.inf)
    place = batch.rank(lot, within="batch", over="traj")
    most = torch.where(batch["mean_entropy"] <= piece.target, piece.most, -(-piece.most // 2))
    return batch.take(plain | (place < most))
