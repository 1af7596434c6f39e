"""A penalty on the second moment of the ratio around 1, with a multiplier that may learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Regularizer, require

LARGEST = 20.0


@dataclass(frozen=True)
class RatioVariance(Regularizer):
    """`lam·(r − 1)²` per step: the Lagrangian of the constraint `E[(r − 1)²] ≤ delta`.

    After every iteration `lam ← max(0, lam + eta·(mean (r − 1)² − delta))`, with r the updated
    policy against the old one on the collected batch.

    Parameters: `lam` (the multiplier at the start, default 0.04), `delta` (the allowed variance,
    default 0.1), `eta` (step of the multiplier, default 0: it stays). The named state
    `ratio_multiplier` is the multiplier, where it learns. |log r| is capped at 20.
    It is its own piece because no divergence of log-probabilities is a square in the ratio.
    Shapes: `[N]`. Reference: R2VPO, 2601.03320.
    """

    lam: float = 0.04
    delta: float = 0.1
    eta: float = 0.0

    metric = "ratio_variance"

    def __post_init__(self) -> None:
        require(self.lam >= 0, self, "lam", "at least 0")
        require(self.delta > 0, self, "delta", "above 0")
        require(self.eta >= 0, self, "eta", "at least 0 (0 = fixed)")

    @property
    def needs(self) -> frozenset[str]:
        """`logp`, `logp_old`."""
        return frozenset({"logp", "logp_old"})

    def init(self) -> dict[str, Any]:
        """The multiplier, where it learns."""
        return {"ratio_multiplier": self.lam} if self.eta else {}

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """One step of projected ascent."""
        if not self.eta or not len(batch):
            return state
        gap = float(self._square(batch).double().mean()) - self.delta
        return {**state, "ratio_multiplier": max(0.0, state["ratio_multiplier"] + self.eta * gap)}

    def _square(self, batch: Batch) -> Tensor:
        log_ratio = batch["logp"] - batch["logp_old"].to(batch["logp"])
        return log_ratio.clamp(-LARGEST, LARGEST).expm1().square()

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        square = self._square(batch)
        return (batch["ratio_multiplier"].to(square) if self.eta else self.lam) * square
