"""Tokens that good and bad answers of a group have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Advantage, require
from anypo.pieces.advantage.group import wants_groups

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class Conflict(Advantage):
    """A factor that protects what good and bad answers share at their beginnings and ends.

    `δ_n = Π (1 outside the run; boost if the answer is above its group's mean; 0 if below)` over
    two runs: the longest beginning of the answer whose every token stands at the same place in some
    answer above the mean and in some answer below it, and the longest end, counted from the end.

    Parameters: `boost` (default 2; a token in both runs gets its square), `per_conflict` (divided
    by the number of the answer's tokens in a run; default no: the published code does, with a count
    that mixes up its coordinates).
    Answers at the mean have factor 1. Writes δ as the column `token_weight`. Raises where the batch
    has no tokens. Use as `Conflict() * Baseline()`. Shapes: `[N]`. Reference: GTPO, 2508.03772. Its
    own piece because it alone reads which tokens were written.
    """

    boost: float = 2.0
    per_conflict: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.boost < torch.inf, self, "boost", "at least 0 and finite")

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two."""
        wants_groups(self, recipe)

    def __call__(self, batch: Batch) -> Tensor:
        """The factors."""
        outcome = batch.sum(batch["reward"], within="traj")
        side = (outcome - batch.mean(outcome, "group", "traj")).sign()
        factor = torch.where(side > 0, self.boost, torch.where(side < 0, 0.0, 1.0)).to(outcome)
        out, inside = torch.ones_like(outcome), torch.zeros_like(outcome)
        ahead = batch.scan(torch.ones_like(outcome), 1.0)
        places = (batch.size("step", "traj") - ahead.double(), ahead.double())
        for k, place in enumerate(places):
            apart = 1 - _shared(batch, place, side).to(outcome)
            later = batch.scan(apart, 1.0)
            before = batch.sum(apart, within="traj") - later + apart
            run = (before if k == 0 else later) == 0
            out, inside = torch.where(run, out * factor, out), torch.where(run, 1.0, inside)
        return out / batch.sum(inside, within="traj").clamp(min=1) if self.per_conflict else out

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """The factors, to be looked at."""
        return {"token_weight": advantage}


def _shared(batch: Batch, place: Tensor, side: Tensor) -> Tensor:
    """Whether a token stands at its place in answers of both sides of its group."""
    if "tokens" not in batch.inputs:
        raise UsageError("Conflict compares tokens: it needs a language policy")
    rows, position = batch.id("seq").tolist(), batch.id("position").tolist()
    lists = [row.tolist() for row in batch.inputs["tokens"]]
    token = torch.tensor([lists[i][t] for i, t in zip(rows, position, strict=True)])
    named = Batch({}, {**batch.ids, "place": place.long(), "token": token})
    unit = ("group", "place", "token")
    return (named.max(side, unit) > 0) & (named.min(side, unit) < 0)
