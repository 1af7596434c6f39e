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

    Parameters
    ----------
    gamma, lam : in [0, 1] (defaults 1 and 0.95; control uses 0.99 and 0.95).
    lam_value : λ of the target (−1, the default, takes `lam`; VC-PPO has 1).
    adapt : α of a λ that grows with the trajectory's length n, `1 − 1/max(α·n, 1)`, in place of
        `lam` (default 0: off; VAPO has 0.05).
    critic : name of a reference on whose features the critic judges (default: the policy's). Where
        no piece trains the head, that is a value model which stands still.
    bootstrap : the state after the last step is worth V of the last one, as if the trajectory went
        on (default no).

    Writes the critic's target `return` as well. Shapes: `[N]`.
    Reference: Schulman et al., 1506.02438; two λ, 2503.01491; length-adaptive λ, VAPO, 2504.05118;
    frozen critic, DVPO, 2502.16944.
    """

    gamma: float = 1.0
    lam: float = 0.95
    lam_value: float = -1.0
    adapt: float = 0.0
    critic: str = ""
    bootstrap: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.gamma <= 1, self, "gamma", "between 0 and 1")
        require(0 <= self.lam <= 1, self, "lam", "between 0 and 1")
        allowed = self.lam_value == -1 or 0 <= self.lam_value <= 1
        require(allowed, self, "lam_value", "between 0 and 1, or -1 for that of the advantage")
        require(self.adapt >= 0, self, "adapt", "at least 0 (0 = off)")

    @property
    def _names(self) -> tuple[str, str]:
        owner = f"ref.{self.critic}." if self.critic else ""
        return f"{owner}value", f"{owner}value_next"

    @property
    def needs(self) -> frozenset[str]:
        """`value`, `value_next`, or those of the reference."""
        return frozenset(self._names)

    def modules(self) -> dict[str, int]:
        """The critic."""
        return {"value": 1}

    def __call__(self, batch: Batch) -> Tensor:
        """The estimate."""
        length = batch.size("step", "traj")
        grown = 1 - 1 / (self.adapt * length).clamp(min=1)
        return self._estimate(batch, grown if self.adapt else self.lam)

    def _estimate(self, batch: Batch, lam: Tensor | float) -> Tensor:
        value, ahead = (batch[name] for name in self._names)
        if self.bootstrap:
            ahead = torch.where(batch.last("traj"), value, ahead)
        delta = batch["reward"] + self.gamma * ahead - value
        return batch.scan(delta, self.gamma * lam, within="traj")

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """`return = A' + V`."""
        if self.lam_value >= 0:
            advantage = self._estimate(batch, self.lam_value)
        return {"return": advantage + batch[self._names[0]]}


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
    weighted : for older data, with `c = exp(logp_old − logp_mu)`: the mean is that under the
        weights c, the deviation that of c·A, as in GePPO (default no).

    Equal members give exactly 0. Shapes: `[N]`.
    Reference: the 37 implementation details of PPO (there per minibatch), verl (over the batch).
    """

    within: str | tuple[str, ...] = "batch"
    eps: float = 1e-8
    over: str = "step"
    ddof: int = 1
    under_root: bool = False
    weighted: bool = False

    def __post_init__(self) -> None:
        require(self.eps >= 0, self, "eps", "at least 0")
        require(self.ddof in (0, 1), self, "ddof", "0 or 1")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing, or what the weights compare."""
        return frozenset({"logp_old", "logp_mu"} if self.weighted else ())

    def __call__(self, batch: Batch) -> Tensor:
        """The standardised advantage."""
        value = batch["advantage"]
        names = (self.within,) if isinstance(self.within, str) else tuple(self.within)
        if "sign" in names:
            batch = Batch(batch.columns, {**batch.ids, "sign": (value > 0).long()})
        c = torch.ones_like(value)
        if self.weighted:
            c = (batch["logp_old"] - batch["logp_mu"]).to(value).exp()
        spread = batch.std(c * value, names, self.over, self.ddof)
        mean = batch.mean(c * value, names, self.over) / batch.mean(c, names, self.over)
        centred = value - mean
        width = (spread**2 + self.eps).sqrt() if self.under_root else spread + self.eps
        return torch.where(spread > 0, centred / width, torch.zeros_like(centred))
