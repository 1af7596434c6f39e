"""Risk measures of the summed outcomes of several prompts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage, require
from anypo.math import segments
from anypo.pieces.advantage.group import wants_groups

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe

TRACKED: tuple[str, ...] = ("q_low", "q_high")


@dataclass(frozen=True)
class BundleRisk(Advantage):
    """The slope of a mixed value at risk of papers: the k-th answers to all prompts of a bundle.

    With S a paper's summed outcome and q_l, q_h the tracked quantiles at levels α < β:
    `u = ((S − q_l)⁺ − (S − q_h)⁺ [+ q_l − q_h]) / (β − α + e)`, `v = −(q_l − S)⁺ / (α + e)`,
    `a = (mix · v + u)/(mix + 1)`, divided by the deviation of S within the bundle when
    `standardise`; the part in brackets only if `natural`. Each answer of the paper is credited with
    `a`, divided by the deviation of its prompt's outcomes (`std`), with `a` (`uniform`), or with a
    share of it by `R − mean R` of its prompt (`share`).

    Parameters: `size` (most prompts of a bundle, default 5; bundles are nearly equal), `alpha`,
    `beta` (0.2 and 0.8), `mix` (1.5), `natural` (default yes: no answer is credited above 0),
    `standardise` (yes), `credit` (`std`), `rate` (0.1: `q ← q + rate · (level − P[S < q])` after
    each iteration), `eps` (e, 1e-6). Keeps `q_low` and `q_high`: at first the quantiles of each
    bundle, after the first iteration of all papers. Bundles and papers follow the lots, unless the
    batch has the id `bundle`. Papers that lack an answer, and papers of equal outcome, get 0 (the
    published code divides by e there).
    Shapes: `[N]`. Reference: RiskPO, 2510.00911. Its own piece because its unit spans prompts.
    """

    size: int = 5
    alpha: float = 0.2
    beta: float = 0.8
    mix: float = 1.5
    natural: bool = True
    standardise: bool = True
    credit: Literal["std", "uniform", "share"] = "std"
    rate: float = 0.1
    eps: float = 1e-6

    def __post_init__(self) -> None:
        require(self.size >= 1, self, "size", "at least 1")
        require(0 <= self.alpha < self.beta, self, "alpha", "at least 0 and below beta")
        require(self.beta <= 1, self, "beta", "at most 1")
        require(0 <= self.mix < math.inf, self, "mix", "at least 0 and finite")
        known = ("std", "uniform", "share")
        require(self.credit in known, self, "credit", f"one of {', '.join(known)}")
        require(0 <= self.rate < math.inf, self, "rate", "at least 0 and finite")
        require(self.eps > 0, self, "eps", "above 0")

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two."""
        wants_groups(self, recipe)

    def __call__(self, batch: Batch) -> Tensor:
        """The credit of every answer."""
        out = torch.zeros_like(batch["reward"])
        papers, whole = _papers(batch, self.size)
        if bool(whole.any()):
            out[whole] = _credit(self, papers)
        return out

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """The quantiles a step further; at first those of all papers."""
        papers, whole = _papers(batch, self.size) if len(batch) else (batch, torch.zeros(0))
        if not bool(whole.any()):
            return state
        score = papers.at("paper")["score"].double()
        levels = dict(zip(TRACKED, (self.alpha, self.beta), strict=True))
        below = {k: float((score < state[k]).double().mean()) for k in TRACKED if k in state}
        moved = {k: state[k] + self.rate * (levels[k] - share) for k, share in below.items()}
        return {**state, **{k: float(score.quantile(x)) for k, x in levels.items()}, **moved}


def _papers(batch: Batch, size: int) -> tuple[Batch, Tensor]:
    """The steps of complete papers, with ids `bundle` and `paper` and the sum `score`."""
    lot = batch["lot"]
    place = batch.rank(batch.min(lot, within="traj"), "group", "traj").long()
    bundle = batch.ids.get("bundle")
    if bundle is None:
        number = batch.rank(batch.min(lot, within="group"), "batch", "group").long()
        count = batch.count("group")
        bundle = number * -(-count // size) // count
    named = Batch(
        {"reward": batch["reward"], **{k: batch[k] for k in TRACKED if k in batch}},
        {**batch.ids, "bundle": bundle, "paper": segments.combine(bundle, place)},
    )
    outcome = named.sum(batch["reward"], within="traj")
    named = named.with_({"outcome": outcome, "score": named.sum(outcome, "paper", "traj")})
    whole = named.size("traj", "paper") == named.size("group", "bundle")
    return named.take(whole), whole


def _credit(piece: BundleRisk, papers: Batch) -> Tensor:
    score = papers["score"]
    low, high = (
        papers[k].to(score) if k in papers else papers.quantile(score, level, "bundle", "paper")
        for k, level in zip(TRACKED, (piece.alpha, piece.beta), strict=True)
    )
    inner = (score - low).clamp(min=0) - (score - high).clamp(min=0)
    inner = inner + (low - high) if piece.natural else inner
    tail = -(low - score).clamp(min=0) / (piece.alpha + piece.eps)
    risk = (piece.mix * tail + inner / (piece.beta - piece.alpha + piece.eps)) / (piece.mix + 1)
    if piece.standardise:
        risk = risk / (_deviation(papers, score, "bundle", "paper") + piece.eps)
    if piece.credit == "std":
        risk = risk / (_deviation(papers, papers["outcome"], "group", "traj", 1e-3) + piece.eps)
    if piece.credit == "share":
        part = papers["outcome"] - papers.mean(papers["outcome"], "group", "traj")
        total = papers.sum(part, "paper", "traj")
        even = 1 / papers.size("traj", "paper").to(score)
        risk = risk * torch.where(total.abs() > 1e-6, part / total, even)
    several = papers.size("paper", "bundle") > 1
    equal = papers.max(score, "bundle", "paper") == papers.min(score, "bundle", "paper")
    return torch.where(several & equal, torch.zeros_like(risk), risk)


def _deviation(batch: Batch, x: Tensor, within: str, over: str, least: float = 0.0) -> Tensor:
    """The deviation of units, 1 for a single one and where it is at most `least`."""
    spread = batch.std(x, within, over)
    one = (batch.size(over, within) == 1) | (spread <= least)
    return torch.where(one, torch.ones_like(spread), spread)
