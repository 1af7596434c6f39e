"""Divergence from a reference policy as a penalty."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Regularizer, require
from anypo.math import kl


@dataclass(frozen=True)
class KL(Regularizer):
    """`beta · w · KL(π ‖ ref)` per step, by an estimator or in closed form.

    Parameters
    ----------
    ref : name of the reference (`base`: the policy at the start, or as last refreshed), or `old`:
        the policy at the start of the update.
    beta : coefficient; 0 loads no reference.
    form : `k1`, `k2`, `k3`, `abs`, straight-through `k1+`, `k3+`, or `k1-` on the sampled step
        (see `anypo.math.kl.estimate`), or `gaussian`: the closed form for equal covariances, from
        the columns `mean` and `std`.
    reverse : the estimator of `KL(ref ‖ π)` on samples of the reference: d is `ref − logp`.
    weighted : times the importance weight `w = π/π_old`, with its gradient; without it (default,
        as in GRPO) the estimate is biased on samples of an older policy.

    Shapes: `[N]`. Reference: Schulman 2020; k3 in the loss, DeepSeekMath, 2402.03300; with weight,
    2505.17508.
    """

    ref: str = "base"
    beta: float = 0.04
    form: str = "k3"
    reverse: bool = False
    weighted: bool = False

    metric = "kl"

    @property
    def coefficient(self) -> float:
        """`beta`."""
        return self.beta

    def __post_init__(self) -> None:
        require(self.beta >= 0, self, "beta", "at least 0")
        known = (*kl.FORMS, "gaussian")
        require(self.form in known, self, "form", f"one of {', '.join(known)}")
        plain = not (self.reverse or self.weighted)
        require(plain or self.form != "gaussian", self, "form", "an estimator, not gaussian")

    @property
    def _anchor(self) -> str:
        return "logp_old" if self.ref == "old" else f"ref.{self.ref}"

    @property
    def needs(self) -> frozenset[str]:
        """The columns that the form compares; none when `beta` is 0."""
        if self.beta == 0:
            return frozenset()
        if self.form == "gaussian":
            return frozenset({"mean", f"ref.{self.ref}.mean", "std"})
        return frozenset({"logp", self._anchor} | ({"logp_old"} if self.weighted else set()))

    def __call__(self, batch: Batch) -> Tensor:
        """The penalty."""
        if self.beta == 0:
            return batch["advantage"].new_zeros(len(batch))
        if self.form == "gaussian":
            ref = batch[f"ref.{self.ref}.mean"]
            return self.beta * kl.gaussian(batch["mean"], ref, batch["std"])
        logp = batch["logp"]
        first, second = logp, batch[self._anchor].to(logp)
        if self.reverse:
            first, second = second, first
        penalty = self.beta * kl.estimate(first, second, self.form)
        return penalty * (logp - batch["logp_old"].to(logp)).exp() if self.weighted else penalty
