"""A step size that follows how well the gradient is known."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from anypo.core.batch import Batch
from anypo.core.clock import span
from anypo.core.errors import UsageError
from anypo.core.neutral import Adam
from anypo.core.piece import LEVELS, Update, require
from anypo.math.step_size import signal_step

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class SignalStep(Update):
    """One AdamW step per batch, as long as the gradient is certain: `lr = (1/L) · snr/(1 + snr)`.

    The batch is halved by prompts; with the halves' gradients g₁, g₂ the step is along their mean,
    `|g|² ≈ g₁·g₂`, `V/N ≈ |g₁ − g₂|²/4`, both smoothed over iterations, `snr = |g|²/(V/N)`.

    Parameters
    ----------
    smoothness : L, the curvature that the step must respect (default 0: 1/L is the run's learning
        rate).
    smoothing : weight of the past in the two estimates (default 0.9).
    floor : least share of 1/L that is stepped (default 0.1: a step of 0 would end the run).
    max_grad_norm : norm to which the gradient is clipped (default 1.0; 0 = off).

    Halves are drawn by the lots, so they depend on no order; a batch of one prompt is halved by
    trajectories. Reference: OBLR-PO, 2511.23310, of which only the abstract is known: the estimator
    and the constants are ours. Its own piece because no other update looks at two halves.
    """

    smoothness: float = 0.0
    smoothing: float = 0.9
    floor: float = 0.1
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.smoothness < math.inf, self, "smoothness", "at least 0 (0 = 1/lr)")
        require(0 <= self.smoothing < 1, self, "smoothing", "in [0, 1)")
        require(0 <= self.floor <= 1, self, "floor", "between 0 and 1")
        require(self.max_grad_norm >= 0, self, "max_grad_norm", "at least 0 (0 = off)")

    def check(self, recipe: Recipe) -> None:
        """Halves must not cut what the recipe couples."""
        if LEVELS.index(recipe.couples) > LEVELS.index("traj"):
            raise UsageError(
                f"SignalStep halves the batch, and this recipe couples {recipe.couples}s"
            )

    def minibatches(self, batch: Batch, unit: str, generator: torch.Generator) -> Iterable[Batch]:
        """The whole batch, once."""
        yield batch

    def optimizer(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        """AdamW."""
        return Adam(max_grad_norm=self.max_grad_norm).optimizer(parameters, lr)

    def step(self, problem: Any, optimizer: torch.optim.Optimizer, lr: float) -> dict[str, float]:
        """Both gradients, what they say of the signal, and the step."""
        parts = _halves(problem.batch)
        found = [_gradient(problem, optimizer, part) for part in parts]
        whole = _Known([sum(g) for g in zip(*(g for g, _ in found), strict=True)], optimizer, found)
        kept = next((s for s in optimizer.state.values() if "signal" in s), {})
        with span("optimizer"):
            estimates = _estimates(*(g for g, _ in found))
        seen = dict(zip(("signal", "noise"), estimates, strict=True))
        for name in kept.keys() & seen.keys():
            seen[name] += self.smoothing * (float(kept[name]) - seen[name])
        best = signal_step(max(seen["signal"], 0.0), seen["noise"], 1, self.smoothness or 1 / lr)
        length = max(best["lr"], self.floor / (self.smoothness or 1 / lr))
        metrics = Adam(max_grad_norm=self.max_grad_norm).step(whole, optimizer, length)
        for state in [s for s in optimizer.state.values() if s][:1]:
            state |= {name: torch.tensor(x, dtype=torch.float32) for name, x in seen.items()}
        return {**metrics, "snr": best["snr"], "learning_rate": length}


@dataclass
class _Known:
    """A problem whose gradient is known."""

    gradient: list[Any]
    optimizer: torch.optim.Optimizer
    found: list[Any]

    def accumulate(self) -> dict[str, float]:
        """Hand the gradient over; losses of halves add up, other numbers are their means."""
        for p, g in zip(_parameters(self.optimizer), self.gradient, strict=True):
            p.grad = g
        first, second = (m for _, m in self.found)
        names = first.keys() & second.keys()
        mean = {k: (first[k] + second[k]) / 2 for k in sorted(names)}
        return {**mean, "loss": first["loss"] + second["loss"]}


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _halves(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Two halves of the batch by prompts, or by trajectories where there is one prompt."""
    unit = "group" if batch.count("group") > 1 else "traj"
    place = batch.rank(batch.min(batch["lot"], within=unit), "batch", unit)
    half = place < batch.count(unit) // 2
    return half, ~half


def _gradient(problem: Any, optimizer: torch.optim.Optimizer, part: torch.Tensor) -> Any:
    """The gradient of a part of the problem, and its metrics."""
    optimizer.zero_grad(set_to_none=True)
    metrics = problem.part(part).accumulate()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in _parameters(optimizer)]
    return grads, metrics


def _estimates(first: list[torch.Tensor], second: list[torch.Tensor]) -> tuple[float, float]:
    """`g₁·g₂` and `|g₁ − g₂|²/4`, where each half's gradient is twice what it adds to the whole."""
    pairs = [(2 * a.double(), 2 * b.double()) for a, b in zip(first, second, strict=True)]
    signal = sum(float((a * b).sum()) for a, b in pairs)
    return signal, sum(float((a - b).square().sum()) for a, b in pairs) / 4
