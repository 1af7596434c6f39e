"""Reward against a number that was measured beside the rollout."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage, require


@dataclass(frozen=True)
class Versus(Advantage):
    """Reward to go minus a recorded baseline, clamped: `clip(Σ_{k≥n} r_k − column_n, low, high)`.

    Parameters: `column` (the baseline: what a `Probe` measured), `low`, `high` (bounds of the
    difference, default −∞ and ∞; AAPO has −0.2 and 0.28). Shapes: `[N]`.
    Reference: ReMax, 2310.10505; AAPO, 2505.14264; A*-PO, 2505.20686.
    """

    column: str = "greedy"
    low: float = -float("inf")
    high: float = float("inf")

    def __post_init__(self) -> None:
        require(self.low <= self.high, self, "low", "at most high")

    def __call__(self, batch: Batch) -> Tensor:
        """The clamped difference."""
        ahead = batch.scan(batch["reward"], 1.0, within="traj")
        return (ahead - batch[self.column].to(ahead)).clamp(self.low, self.high)
