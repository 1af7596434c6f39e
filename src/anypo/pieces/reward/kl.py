"""Divergence from a reference as a cost in the reward."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Reward, require
from anypo.math import kl


@dataclass(frozen=True)
class KLReward(Reward):
    """Charge every step for its divergence from a reference: `reward_n −= beta · k(logp, ref)`.

    The estimate is taken under the policy that sampled, without gradient. With k1 and rewards to
    go, the policy gradient is exactly that of `E[R] − beta · KL(π ‖ ref)` of whole answers.

    Parameters: `beta` (default 0.01; 0 loads no reference), `form` (`k1`, default, `k2`, `k3`,
    `abs`), `ref` (name of the reference, default `base`).
    Shapes: `[N]`. Reference: InstructGPT, 2203.02155; REINFORCE++, 2501.03262.
    """

    beta: float = 0.01
    form: str = "k1"
    ref: str = "base"

    def __post_init__(self) -> None:
        require(self.beta >= 0, self, "beta", "at least 0")
        plain = [form for form in kl.FORMS if form.isalnum()]
        require(self.form in plain, self, "form", f"one of {', '.join(plain)}")

    @property
    def needs(self) -> frozenset[str]:
        """`logp_old` and the reference, unless `beta` is 0."""
        return frozenset({"logp_old", f"ref.{self.ref}"} if self.beta else ())

    def __call__(self, batch: Batch) -> Tensor:
        """The reward less its cost."""
        if not self.beta:
            return batch["reward"]
        cost = kl.estimate(batch["logp_old"], batch[f"ref.{self.ref}"], self.form)
        return batch["reward"] - self.beta * cost.to(batch["reward"])
