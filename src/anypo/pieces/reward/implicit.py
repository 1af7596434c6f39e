"""The reward that a preference-trained policy implies, token by token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Reward, require


@dataclass(frozen=True)
class Implicit(Reward):
    """Add the implicit reward of one reference against another to every step.

    `reward_n += clip(scale · (ref.policy − ref.base)_n, −limit, limit)`. For a policy that DPO
    trained this is its token reward, whose sum over an answer, where no limit acts, is
    `scale · log(π_policy/π_base)`.

    Parameters: `policy` (the reference that implies the reward, default `dpo`), `ref` (what it is
    compared with, default `base`), `scale` (default 0.05, RTO's), `limit` (default ∞: off).
    Its own piece because `KLReward` compares the policy that samples, this two that stand still.
    Shapes: `[N]`. Reference: RTO, 2404.18922.
    """

    policy: str = "dpo"
    ref: str = "base"
    scale: float = 0.05
    limit: float = float("inf")

    def __post_init__(self) -> None:
        require(self.scale >= 0, self, "scale", "at least 0")
        require(self.limit > 0, self, "limit", "above 0 (inf = off)")

    @property
    def needs(self) -> frozenset[str]:
        """Both references, unless the scale is 0."""
        return frozenset({f"ref.{self.policy}", f"ref.{self.ref}"} if self.scale else ())

    def __call__(self, batch: Batch) -> Tensor:
        """The reward with what is implied."""
        if not self.scale:
            return batch["reward"]
        implied = self.scale * (batch[f"ref.{self.policy}"] - batch[f"ref.{self.ref}"])
        return batch["reward"] + implied.clamp(-self.limit, self.limit).to(batch["reward"])
