"""Right answers against wrong ones: the reward is a label, the answer's likelihood a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Surrogate, require

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe

SCORES = ("log_ratio", "ratio", "logp")
FORMS = ("mean", "soft", "logistic")


@dataclass(frozen=True)
class Contrast(Surrogate):
    """Push the scores of a group's right answers above those of its wrong ones.

    With s the mean over an answer's steps of `score`, P the answers with advantage above 0, N the
    others: `mean`: `mean_P s − mean_N s`; `soft`: `mean_P s − tau · log mean_N exp(s/tau)`, which
    pushes the likeliest wrong answers most; `logistic`: classification with the anchor logit 0,
    `−log(1 + Σ_P exp(−s/tau)) − log(1 + Σ_N exp(s/tau))`.

    Parameters: `score` (`log_ratio`, default; `ratio`, its exponential; `logp`), `form` (default
    `logistic`), `tau` (default 1; ∞ makes `soft` the mean, 0 the maximum).
    A group without both kinds contributes 0. Couples the group. Shapes: `[N]`, constant on a group.
    Reference: DisCO, 2505.12366; REAL, 2602.05630.
    """

    score: Literal["log_ratio", "ratio", "logp"] = "log_ratio"
    form: Literal["mean", "soft", "logistic"] = "logistic"
    tau: float = 1.0

    def __post_init__(self) -> None:
        require(self.score in SCORES, self, "score", f"one of {', '.join(SCORES)}")
        require(self.form in FORMS, self, "form", f"one of {', '.join(FORMS)}")
        require(0 < self.tau < float("inf"), self, "tau", "above 0, and finite")

    @property
    def needs(self) -> frozenset[str]:
        """`logp` when it is the score."""
        return frozenset({"logp"} if self.score == "logp" else ())

    @property
    def couples(self) -> str:
        """The group."""
        return "group"

    def check(self, recipe: Recipe) -> None:
        """There must be something to compare with."""
        if recipe.sampling.group < 2:
            raise UsageError("Contrast needs at least 2 trajectories per prompt: raise the group")

    def __call__(self, batch: Batch) -> Tensor:
        """The group's objective, on every step of its answers."""
        score = batch["logp"] if self.score == "logp" else batch["log_ratio"]
        score = batch.mean(score.exp() if self.score == "ratio" else score, within="traj")
        right = batch["advantage"] > 0
        share = batch.mean(right.to(score), within="group", over="traj")
        mixed = (share > 0) & (share < 1)
        value = _compared(self, batch.take(mixed), score[mixed], right[mixed])
        return torch.zeros_like(score).index_put((mixed,), value)


def _compared(piece: Contrast, batch: Batch, score: Tensor, right: Tensor) -> Tensor:
    """The objective of groups that have both kinds."""
    if piece.form == "logistic":
        missed = _log_sum(batch, -score / piece.tau, right, anchor=True)
        return -missed - _log_sum(batch, score / piece.tau, ~right, anchor=True)
    good = _mean(batch, score, right)
    if piece.form == "mean":
        return good - _mean(batch, score, ~right)
    wrong = _sum(batch, (~right).to(score))
    return good - piece.tau * (_log_sum(batch, score / piece.tau, ~right) - wrong.log())


def _sum(batch: Batch, x: Tensor) -> Tensor:
    return batch.sum(x, within="group", over="traj")


def _mean(batch: Batch, x: Tensor, members: Tensor) -> Tensor:
    total = _sum(batch, torch.where(members, x, torch.zeros_like(x)))
    return total / _sum(batch, members.to(x))


def _log_sum(batch: Batch, x: Tensor, members: Tensor, anchor: bool = False) -> Tensor:
    """`log Σ_members exp(x)`, with `exp(0)` in the sum for an anchor; finite for any x."""
    lowest = torch.full_like(x, -torch.inf)
    top = batch.max(torch.where(members, x.detach(), lowest), within="group", over="traj")
    top = top.clamp(min=0) if anchor else top
    total = _sum(batch, torch.where(members, x - top, lowest).exp())
    return top + (total + (-top).exp() if anchor else total).log()
