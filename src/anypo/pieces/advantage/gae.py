"""Generalised advantage estimation and whitening."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage, require


@dataclass(frozen=True)
class GAE(Advantage):
    """Generalised advantage estimation along a trajectory.

    `δ_n = r_n + γ·V(s_{n+1}) − V(s_n)`, `A_n = δ_n + γ·λ·A_{n+1}`; target `A_n + V(s_n)`.

    `value_next` is 0 after a terminal step and V(final observation) after a truncated one, and it
    reaches across tool output, because only trainable steps are steps.

    Parameters: `gamma`, `lam` in [0, 1] (defaults 1 and 0.95; control uses 0.99 and 0.95).
    Writes the critic's target `return` as well. Shapes: `[N]`.
    Reference: Schulman et al., 1506.02438.
    """

    gamma: float = 1.0
    lam: float = 0.95

    def __post_init__(self) -> None:
        require(0 <= self.gamma <= 1, self, "gamma", "between 0 and 1")
        require(0 <= self.lam <= 1, self, "lam", "between 0 and 1")

    @property
    def needs(self) -> frozenset[str]:
        """`value`, `value_next`."""
        return frozenset({"value", "value_next"})

    def modules(self) -> dict[str, int]:
        """The critic."""
        return {"value": 1}

    def __call__(self, batch: Batch) -> Tensor:
        """The estimate."""
        reward, value, ahead = batch["reward"], batch["value"], batch["value_next"]
        delta = reward + self.gamma * ahead - value
        return batch.scan(delta, self.gamma * self.lam, within="traj")

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """`return = A + V`."""
        return {"return": advantage + batch["value"]}


@dataclass(frozen=True)
class Whiten(Advantage):
    """Standardise the advantage, `(A − mean) / (sd + eps)`; use as `GAE() >> Whiten()`.

    Parameters: `within` (the unit whose steps are standardised together, default the whole batch),
    `eps` (default 1e-8). Equal advantages give exactly 0. Shapes: `[N]`.
    Reference: the 37 implementation details of PPO (there per minibatch), verl (over the batch).
    """

    within: str = "batch"
    eps: float = 1e-8

    def __post_init__(self) -> None:
        require(self.eps >= 0, self, "eps", "at least 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The standardised advantage."""
        value = batch["advantage"]
        spread = batch.std(value, within=self.within)
        centred = value - batch.mean(value, within=self.within)
        return torch.where(spread > 0, centred / (spread + self.eps), torch.zeros_like(centred))
