"""Pointwise shapes of what another piece gives, and mixtures by a gate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core import combine
from anypo.core.batch import Batch
from anypo.core.piece import Advantage, Piece, require

SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda u: (1 - u).clamp(min=0),
    "exp": lambda u: (-u).exp(),
    "logistic": lambda u: torch.sigmoid(-u),
    "step": lambda u: (u <= 0).to(u),
    "parabola": lambda u: 4 * u * (1 - u),
    "tent": lambda u: 2 * torch.minimum(u, 1 - u),
}


@dataclass(frozen=True)
class Curve(Advantage):
    """A weight that falls from `top` to `bottom` as its argument grows; `SolveRate() >> Curve()`.

    `y = bottom + (top − bottom) · φ(steepness · (x − middle))`, x what the piece before it gives.

    Parameters
    ----------
    form : φ(u): `linear` max(1 − u, 0); `exp` e^(−u); `logistic` 1/(1 + e^u); `step` 1 for u ≤ 0,
        else 0; `parabola` 4u(1 − u) and `tent` 2·min(u, 1 − u), both largest at ½.
    steepness, middle : as above (defaults 1 and 0).
    bottom, top : the ends (defaults 0 and 1).
    rising : with −u for u: the weight grows (default no).

    Shapes: `[N]`. Reference: logistic, GRPO-LEAD, 2504.09696; linear and exp, SEED-GRPO,
    2505.12346; parabola and tent, MAPO, 2509.18849.
    """

    form: str = "linear"
    steepness: float = 1.0
    middle: float = 0.0
    bottom: float = 0.0
    top: float = 1.0
    rising: bool = False

    def __post_init__(self) -> None:
        require(self.form in SHAPES, self, "form", f"one of {', '.join(SHAPES)}")
        require(0 <= self.steepness < math.inf, self, "steepness", "at least 0 and finite")
        require(0 <= self.middle < math.inf, self, "middle", "at least 0 and finite")
        require(self.bottom >= 0, self, "bottom", "at least 0")
        require(self.bottom <= self.top < math.inf, self, "top", "at least bottom and finite")

    def __call__(self, batch: Batch) -> Tensor:
        """The weight."""
        u = self.steepness * (batch["advantage"] - self.middle)
        return self.bottom + (self.top - self.bottom) * SHAPES[self.form](-u if self.rising else u)


@dataclass(frozen=True)
class Clamp(Advantage):
    """The advantage between two bounds: with `low=0` its positive part, with `high=0` the rest.

    Parameters: `low` (default −∞), `high` (default ∞). Use as `Baseline() >> Clamp(low=0)`.
    Shapes: `[N]`. Its own piece because it parts the two signs, which a product then weighs apart.
    """

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        require(self.low <= self.high, self, "low", "at most high")

    def __call__(self, batch: Batch) -> Tensor:
        """The clamped advantage."""
        return batch["advantage"].clamp(self.low, self.high)


@dataclass(frozen=True)
class Blend(combine.Combined):
    """Two advantages mixed by a gate in [0, 1]: `A = g · left + (1 − g) · right`.

    Parameters: `gate`, `left`, `right` (pieces of the axis). Where the gate is 1 or 0, one side is
    selected and the other does not enter. Shapes: `[N]`.
    Deviation: methods that mix two losses are mixed in the advantage; the two are the same wherever
    no ratio is clipped. Reference: MAPO, 2509.18849; COPO, 2508.04138.
    """

    gate: Piece
    left: Piece
    right: Piece

    def __call__(self, batch: Batch) -> Tensor:
        """The mixture."""
        gate, left, right = (combine.value(p, batch) for p in self.parts)
        mixed = gate * left + (1 - gate) * right
        return torch.where(gate == 1, left, torch.where(gate == 0, right, mixed))
