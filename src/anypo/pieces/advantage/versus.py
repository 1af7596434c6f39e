"""Numbers that were recorded beside the rollout: against the reward, or as they are."""

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


@dataclass(frozen=True)
class Recorded(Advantage):
    """A recorded column, times a scale: a tag of a request, or a number that the data give.

    Parameters: `column` (default `control`: 1 on answers that were sampled to steer), `scale` (at
    least 0, default 1). A sum with another advantage gives each kind of data its own. It is its own
    piece because every other advantage is made of rewards.
    Shapes: `[N]`. Reference: AEPO, 2510.08141.
    """

    column: str = "control"
    scale: float = 1.0

    def __post_init__(self) -> None:
        require(self.scale >= 0, self, "scale", "at least 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The scaled column."""
        return self.scale * batch[self.column].to(batch["reward"])
