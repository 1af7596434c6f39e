"""An optimizer beside which an average of the weights is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from anypo.core.batch import Batch
from anypo.core.clock import span
from anypo.core.errors import UsageError
from anypo.core.neutral import Adam
from anypo.core.piece import Update, require

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class Averaged(Update):
    """An update rule that keeps a reference at the running average of the weights.

    After step k: `w̄ ← w̄ + (w − w̄)/W_k` with `W_0 = 1` and `W_k = 1 + decay·W_{k−1}`: an
    exponential moving average in which the weights at the start count once, without a bias towards
    them.

    Parameters: `inner` (the update rule, default `Adam()`), `name` (of the reference, default
    `ewma`), `decay` (default 0.889: the last 9 steps or so; 0 is the newest weights). The named
    state `NAME_weight` is W. Where a batch is seen more than once, the reference's columns are
    computed afresh for every update batch. It is its own piece because references are
    otherwise copies and not averages. Shapes: none.
    Reference: PPO-EWMA, 2110.00641.
    """

    inner: Update = field(default_factory=Adam)
    name: str = "ewma"
    decay: float = 0.889

    def __post_init__(self) -> None:
        require(self.name.isidentifier(), self, "name", "a word")
        require(0 <= self.decay < 1, self, "decay", "at least 0 and below 1")

    def check(self, recipe: Recipe) -> None:
        """Somebody must read the average."""
        self.inner.check(recipe)
        if self.name not in recipe.references:
            raise UsageError(f"Averaged keeps the reference {self.name!r}, and no piece reads it")

    def init(self) -> dict[str, Any]:
        """How much the average weighs."""
        return {f"{self.name}_weight": 1.0}

    @property
    def visits(self) -> int:
        """Those of the inner rule."""
        return self.inner.visits

    def minibatches(self, batch: Batch, unit: str, generator: torch.Generator) -> Iterable[Batch]:
        """Those of the inner rule."""
        return self.inner.minibatches(batch, unit, generator)

    def optimizer(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        """That of the inner rule."""
        return self.inner.optimizer(parameters, lr)

    def step(self, problem: Any, optimizer: torch.optim.Optimizer, lr: float) -> dict[str, float]:
        """One step of the inner rule, and one of the average."""
        if self.visits > 1:
            problem.renew(self.name)
        state, key = problem.state, f"{self.name}_weight"
        start = state.references[self.name] or state.policy.snapshot()
        metrics = self.inner.step(problem, optimizer, lr)
        if problem.index:  # a further objective has no part in the policy
            return metrics
        weight = 1 + self.decay * state.pieces[key]
        with span("optimizer"):
            newest = state.policy.snapshot()
            average = {k: w.lerp(newest[k], 1 / weight) for k, w in start.items()}
        state.references[self.name] = average
        state.refreshed.add(self.name)
        state.pieces = {**state.pieces, key: weight}
        return metrics
