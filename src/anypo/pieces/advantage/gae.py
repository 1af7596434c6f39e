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

    `δ_n = r_n + γ·V(s_{n+1}) − V(s_n)`, `A_n = δ_n + γ·λ·A_{n+1}`; the critic's target is
    `A'_n + V(s_n)`, where A' is the same estimate with `lam_value` in place of λ.

    `value_next` is 0 after a terminal step and V(final observation) after a truncated one, and it
    reaches across tool output, because only trainable steps are steps.

    Parameters: `gamma`, `lam` in [0, 1] (defaults 1 and 0.95; control uses 0.99 and 0.95),
    `lam_value` (λ of the target; −1, the default, takes `lam`; VC-PPO has 1).
    Writes the critic's target `return` as well. Shapes: `[N]`.
    Reference: Schulman et al., 1506.02438; two λ, 2503.01491.
    """

    gamma: float = 1.0
    lam: float = 0.95
    lam_value: float = -1.0

    def __post_init__(self) -> None:
        require(0 <= self.gamma <= 1, self, "gamma", "between 0 and 1")
        require(0 <= self.lam <= 1, self, "lam", "between 0 and 1")
        allowed = self.lam_value == -1 or 0 <= self.lam_value <= 1
        require(allowed, self, "lam_value", "between 0 and 1, or -1 for that of the advantage")

    @property
    def needs(self) -> frozenset[str]:
        """`value`, `value_next`."""
        return frozenset({"value", "value_next"})

    def modules(self) -> dict[str, int]:
        """The critic."""
        return {"value": 1}

    def __call__(self, batch: Batch) -> Tensor:
        """The estimate."""
        return self._estimate(batch, self.lam)

    def _estimate(self, batch: Batch, lam: float) -> Tensor:
        reward, value, ahead = batch["reward"], batch["value"], batch["value_next"]
        delta = reward + self.gamma * ahead - value
        return batch.scan(delta, self.gamma * lam, within="traj")

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """`return = A' + V`."""
        if self.lam_value >= 0:
            advantage = self._estimate(batch, self.lam_value)
        return {"return": advantage + batch["value"]}


@dataclass(frozen=True)
class Whiten(Advantage):
    """Standardise the advantage, `(A − mean) / (sd + eps)`; use as `GAE() >> Whiten()`.

    Parameters
    ----------
    within : the unit whose members are standardised together (default the whole batch), or several
        that cross; `sign` parts steps by the sign of what is standardised.
    eps : added to the deviation, or, with `under_root`, to the variance (default 1e-8).
    over : the members (default `step`); a wider unit needs one value per unit.
    ddof : 1 (verl) or 0. under_root : `sqrt(variance + eps)`, as verl writes it (default no).

    Equal members give exactly 0. Shapes: `[N]`.
    Reference: the 37 implementation details of PPO (there per minibatch), verl (over the batch).
    """

    within: str | tuple[str, ...] = "batch"
    eps: float = 1e-8
    over: str = "step"
    ddof: int = 1
    under_root: bool = False

    def __post_init__(self) -> None:
        require(self.eps >= 0, self, "eps", "at least 0")
        require(self.ddof in (0, 1), self, "ddof", "0 or 1")

    def __call__(self, batch: Batch) -> Tensor:
        """The standardised advantage."""
        value = batch["advantage"]
        names = (self.within,) if isinstance(self.within, str) else tuple(self.within)
        if "sign" in names:
            batch = Batch(batch.columns, {**batch.ids, "sign": (value > 0).long()})
        spread = batch.std(value, names, self.over, self.ddof)
        centred = value - batch.mean(value, names, self.over)
        width = (spread**2 + self.eps).sqrt() if self.under_root else spread + self.eps
        return torch.where(spread > 0, centred / width, torch.zeros_like(centred))
