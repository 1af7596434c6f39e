"""The critic's regression, in the same objective as the policy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Regularizer, require


@dataclass(frozen=True)
class ValueLoss(Regularizer):
    """`coef · ½ · max((V − R)², (V_c − R)²)` with `V_c = V_old + clip(V − V_old, −clip, clip)`.

    Parameters: `coef` (default 0.5), `clip` (default ∞: not clipped, `½(V − R)²`; verl has 0.5,
    CleanRL 0.2). Reads the target `return`, which `GAE` writes. Owns the head `value`.
    Shapes: `[N]`. Reference: PPO, 1707.06347; value clip, verl and CleanRL.
    """

    coef: float = 0.5
    clip: float = float("inf")

    metric = "value_loss"

    @property
    def coefficient(self) -> float:
        """`coef`."""
        return self.coef

    def __post_init__(self) -> None:
        require(self.coef > 0, self, "coef", "above 0")
        require(self.clip > 0, self, "clip", "above 0 (inf = off)")

    @property
    def needs(self) -> frozenset[str]:
        """`value`, and `value_old` for the clip."""
        return frozenset({"value"} if self.clip == float("inf") else {"value", "value_old"})

    def modules(self) -> dict[str, int]:
        """The critic."""
        return {"value": 1}

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        value, target = batch["value"], batch["return"].to(batch["value"])
        error = (value - target) ** 2
        if self.clip < float("inf"):
            old = batch["value_old"].to(value)
            near = old + (value - old).clamp(-self.clip, self.clip)
            error = torch.maximum(error, (near - target) ** 2)
        return self.coef * 0.5 * error
