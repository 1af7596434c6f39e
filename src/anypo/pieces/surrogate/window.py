"""Clipped surrogates whose window, or what happens outside of it, is not PPO's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Surrogate, require
from anypo.pieces.surrogate.clip import clipped

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


def _check_bounds(piece: LeakyClip | EntropyClip) -> None:
    require(0 <= piece.low <= 1, piece, "low", "between 0 and 1")
    require(piece.high >= 0, piece, "high", "at least 0")
    require(piece.dual > 1, piece, "dual", "above 1 (inf = off)")


@dataclass(frozen=True)
class LeakyClip(Surrogate):
    """PPO's clip, beyond which a step keeps a bounded gradient.

    Where PPO clips, the objective is `b·bound·A·u` with `u = logp's likelihood over itself`, whose
    value is 1 and whose gradient is that of `logp`: `b = beta1` and `bound = 1−low` for A < 0,
    `b = beta2` and `bound = 1+high` for A > 0. Elsewhere it is `r·A`, and for A < 0 at least
    `dual·A`.

    Parameters: `low`, `high` (distance of the bounds from 1, default 0.2 and 0.28), `beta1` (share
    of the gradient kept below, default 0.5), `beta2` (above, default 1), `dual` (default ∞: off;
    the code 3 or 10). Both shares 0 give PPO's gradient. It is its own piece because PPO's
    objective is constant where this one has a slope. Shapes: `[N]`.
    Reference: CE-GPPO, 2509.20712.
    """

    low: float = 0.2
    high: float = 0.28
    beta1: float = 0.5
    beta2: float = 1.0
    dual: float = math.inf

    def __post_init__(self) -> None:
        _check_bounds(self)
        require(self.beta1 >= 0, self, "beta1", "at least 0")
        require(self.beta2 >= 0, self, "beta2", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """`logp`."""
        return frozenset({"logp"})

    def __call__(self, batch: Batch) -> Tensor:
        """The objective."""
        ratio, advantage = batch["log_ratio"].exp(), batch["advantage"]
        raw = clipped(ratio, advantage, 0.0, math.inf, self.dual)
        unit = (batch["logp"] - batch["logp"].detach()).exp()
        below = (ratio < 1 - self.low) & (advantage < 0)
        above = (ratio > 1 + self.high) & (advantage > 0)
        objective = torch.where(below, self.beta1 * (1 - self.low) * unit * advantage, raw)
        return torch.where(above, self.beta2 * (1 + self.high) * unit * advantage, objective)


@dataclass(frozen=True)
class EntropyClip(Surrogate):
    """PPO's clip whose bounds and advantages depend on how uncertain the policy was at a step.

    With `h` in [−1, 1] (the column `gauge`): for h ≤ 0 the lower bound is `low·(1 − clip_alpha·h)`,
    for h > 0 the upper one is `high·(1 + clip_alpha·h)`. The advantage is `A·(1 + adv_beta·h)` for
    h > 0 outside of the zone `1 − low/2 < r < 1 + high/2` and for h ≤ 0 inside of it, else A.

    Parameters: `low`, `high` (default 0.2 and 0.28), `clip_alpha`, `adv_beta` (default 1; both 0
    are PPO), `dual` (default 3; ∞ = off). Reads `gauge`, which `Beside(…, "gauge", Gauge())`
    writes. It is its own piece because bounds and advantage depend on the step together.
    Shapes: `[N]`. Reference: HAPO, 2509.16591.
    """

    low: float = 0.2
    high: float = 0.28
    clip_alpha: float = 1.0
    adv_beta: float = 1.0
    dual: float = 3.0

    def __post_init__(self) -> None:
        _check_bounds(self)
        require(self.clip_alpha >= 0, self, "clip_alpha", "at least 0")
        require(0 <= self.adv_beta <= 1, self, "adv_beta", "between 0 and 1")

    def __call__(self, batch: Batch) -> Tensor:
        """The clipped objective."""
        ratio, advantage, h = batch["log_ratio"].exp(), batch["advantage"], batch["gauge"]
        low = self.low * (1 - self.clip_alpha * h.clamp(max=0))
        high = self.high * (1 + self.clip_alpha * h.clamp(min=0))
        neutral = (ratio > 1 - low / 2) & (ratio < 1 + high / 2)
        scaled = advantage * (1 + self.adv_beta * h)
        advantage = torch.where(neutral == (h > 0), advantage, scaled)
        return clipped(ratio, advantage, 1 - low, 1 + high, self.dual)


@dataclass(frozen=True)
class MixedClip(Surrogate):
    """PPO's minimum on a mixture of the token's ratio and the trajectory's, each clipped by itself.

    `ρ = a·r + (1−a)·s`, `ρ̄ = a·clip(r, 1∓clip) + (1−a)·clip(s, 1−seq_low, 1+seq_high)`,
    `min(ρ·A, ρ̄·A)`, with s the geometric mean of the trajectory's ratios, whose gradient at a step
    is that of the step's own `logp`.

    Parameters: `mix` (a, default 1/2; 1 is PPO, 0 is GSPO with token gradients), `clip` (of the
    token's ratio, default 0.2), `seq_low`, `seq_high` (of the trajectory's, default 3e-4 and 4e-4).
    It is its own piece because two ratios are clipped before one surrogate is taken. Couples the
    trajectory. Shapes: `[N]`. Reference: DHPO, 2601.05607.
    """

    mix: float = 0.5
    clip: float = 0.2
    seq_low: float = 3e-4
    seq_high: float = 4e-4

    def __post_init__(self) -> None:
        require(0 <= self.mix <= 1, self, "mix", "between 0 and 1")
        require(0 <= self.clip <= 1, self, "clip", "between 0 and 1")
        require(0 <= self.seq_low <= 1, self, "seq_low", "between 0 and 1")
        require(self.seq_high >= 0, self, "seq_high", "at least 0")

    @property
    def couples(self) -> str:
        """The trajectory."""
        return "traj"

    def __call__(self, batch: Batch) -> Tensor:
        """The minimum."""
        token, advantage = batch["log_ratio"], batch["advantage"]
        mean = batch.mean(token.detach(), within="traj")
        whole = (mean + token - token.detach()).exp()
        ratio, rest = token.exp(), 1 - self.mix
        raw = self.mix * ratio + rest * whole
        bounded = self.mix * ratio.clamp(1 - self.clip, 1 + self.clip)
        bounded = bounded + rest * whole.clamp(1 - self.seq_low, 1 + self.seq_high)
        return torch.minimum(raw * advantage, bounded * advantage)


@dataclass(frozen=True)
class CentredClip(Surrogate):
    """PPO's clip against the sampler, whose window stands where another policy is.

    `min(r·A, clip(r, c − low, c + high)·A)` with r = π/μ and `c = exp(centre − logp_mu)`; with
    `window="factor"` the bounds are `c·(1−low)` and `c·(1+high)`, which is c times PPO's objective
    on the ratio π/centre. For `centre = logp_mu` both are PPO.

    Parameters
    ----------
    low, high : half-widths (default 0.2).
    centre : `logp_old` (default), or `ref.NAME`.
    window : `shift` (default) or `factor`.
    policies : M, of how many policies the data are (default 1: fresh data). The half-widths are
        multiplied by `2/(M+1)`, which keeps the bound on the mean change of a policy.
    cap : largest ratio r; beyond it the objective is scaled down to it (default ∞: off).

    Shapes: `[N]`. Reference: GePPO, 2111.00072; PPO-EWMA, 2110.00641.
    """

    low: float = 0.2
    high: float = 0.2
    centre: str = "logp_old"
    window: Literal["shift", "factor"] = "shift"
    policies: int = 1
    cap: float = math.inf

    def __post_init__(self) -> None:
        require(0 <= self.low <= 1, self, "low", "between 0 and 1")
        require(self.high >= 0, self, "high", "at least 0")
        known = self.centre == "logp_old" or self.centre.startswith("ref.")
        require(known, self, "centre", "logp_old or ref.NAME")
        require(self.window in ("shift", "factor"), self, "window", "shift or factor")
        require(self.policies >= 1, self, "policies", "at least 1")
        require(self.cap > 0, self, "cap", "above 0 (inf = off)")

    @property
    def needs(self) -> frozenset[str]:
        """The centre and the sampler's log-probability."""
        return frozenset({self.centre, "logp_mu"})

    def check(self, recipe: Recipe) -> None:
        """The ratio must be against the sampler, and the data as old as said."""
        if "logp_mu" not in recipe.ratio.needs:
            raise UsageError('CentredClip compares with the sampler: use ratio=Ratio(to="logp_mu")')
        if self.policies > getattr(recipe.sampling, "policies", 1):
            raise UsageError(
                f"policies={self.policies} needs a sampling piece that keeps the data of earlier "
                "policies, and there is none: policies must be 1"
            )

    def __call__(self, batch: Batch) -> Tensor:
        """The clipped objective."""
        ratio, advantage = batch["log_ratio"].exp(), batch["advantage"]
        centre = (batch[self.centre] - batch["logp_mu"]).to(ratio).exp()
        unit = centre if self.window == "factor" else torch.ones_like(centre)
        width = unit * 2 / (self.policies + 1)
        low, high = centre - self.low * width, centre + self.high * width
        excess = (self.cap / ratio.detach()).clamp(max=1)
        return excess * clipped(ratio, advantage, low, high, math.inf)
