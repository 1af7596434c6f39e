"""Entropy bonus."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Regularizer, require


@dataclass(frozen=True)
class Entropy(Regularizer):
    """`−coef · H(π(·|s_n))` per step: a positive coefficient keeps the policy spread.

    Parameters: `coef` (default 0.01, the habit of control; language models use 0 to 0.001).
    Shapes: `[N]`. Reference: Williams & Peng 1991; A3C, 1602.01783.
    """

    coef: float = 0.01

    def __post_init__(self) -> None:
        require(self.coef >= 0, self, "coef", "at least 0 (to lower the entropy: -1.0 * Entropy())")

    @property
    def needs(self) -> frozenset[str]:
        """`entropy`, unless the coefficient is 0."""
        return frozenset({"entropy"} if self.coef else ())

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        if not self.coef:
            return batch["advantage"].new_zeros(len(batch))
        return -self.coef * batch["entropy"]
