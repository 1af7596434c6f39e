"""A penalty on the steps that would lower the entropy most."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Regularizer, require
from anypo.math import select


@dataclass(frozen=True)
class TopCovariance(Regularizer):
    """1 on the steps whose advantage and `logp` covary most, 0 elsewhere: `KL("old") * this`.

    `cov_n = (A_n − mean A)(logp_n − mean logp)` over the update batch, signed, without gradient;
    the `max(1, ⌊cov_ratio·N⌋)` largest are chosen, equal ones by lot.

    Parameters: `cov_ratio` (share of steps, default 0.002). It is its own piece because no other
    choice among steps is made under the current policy. Couples the batch. Shapes: `[N]`.
    Reference: KL-Cov, 2505.22617.
    """

    cov_ratio: float = 0.002

    def __post_init__(self) -> None:
        require(0 < self.cov_ratio <= 1, self, "cov_ratio", "above 0 and at most 1")

    @property
    def needs(self) -> frozenset[str]:
        """`logp`, `lot`."""
        return frozenset({"logp", "lot"})

    @property
    def couples(self) -> str:
        """The batch."""
        return "batch"

    def __call__(self, batch: Batch) -> Tensor:
        """The choice."""
        advantage = batch["advantage"]
        covariance = select.covariance(advantage, batch["logp"].detach().to(advantage))
        count = select.quota(self.cov_ratio, len(batch))
        return select.largest(covariance, batch["lot"], count).to(batch["logp"])
