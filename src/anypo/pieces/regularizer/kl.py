"""Divergence from a reference policy as a penalty."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Regularizer, require
from anypo.math import kl


@dataclass(frozen=True)
class KL(Regularizer):
    """`beta · KL(π ‖ ref)` per step, by an estimator or in closed form.

    Parameters
    ----------
    ref : name of the reference (`base`: the policy at the start, or as last refreshed).
    beta : coefficient; 0 loads no reference.
    form : `k1`, `k2`, `k3`, `abs` on the sampled step (see `anypo.math.kl.estimate`), or
        `gaussian`: the closed form for equal covariances, from the columns `mean` and `std`.

    Shapes: `[N]`. Reference: Schulman 2020; k3 in the loss, DeepSeekMath, 2402.03300.
    """

    ref: str = "base"
    beta: float = 0.04
    form: str = "k3"

    metric = "kl"

    @property
    def coefficient(self) -> float:
        """`beta`."""
        return self.beta

    def __post_init__(self) -> None:
        require(self.beta >= 0, self, "beta", "at least 0")
        known = (*kl.FORMS, "gaussian")
        require(self.form in known, self, "form", f"one of {', '.join(known)}")

    @property
    def needs(self) -> frozenset[str]:
        """The columns that the form compares; none when `beta` is 0."""
        if self.beta == 0:
            return frozenset()
        if self.form == "gaussian":
            return frozenset({"mean", f"ref.{self.ref}.mean", "std"})
        return frozenset({"logp", f"ref.{self.ref}"})

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        if self.beta == 0:
            return batch["advantage"].new_zeros(len(batch))
        if self.form == "gaussian":
            ref = batch[f"ref.{self.ref}.mean"]
            return self.beta * kl.gaussian(batch["mean"], ref, batch["std"])
        logp = batch["logp"]
        return self.beta * kl.estimate(logp, batch[f"ref.{self.ref}"].to(logp), self.form)
