"""Rewards that weigh right and wrong answers by their entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.piece import Reward, require


@dataclass(frozen=True)
class EntropyReward(Reward):
    """Right steps share a bonus by their entropy, wrong ones a penalty by its inverse.

    Right: `base + bonus · d · H/Σ H`; wrong: `−base − bonus · d · H⁻¹/Σ H⁻¹`, sums and count d over
    the group's trajectories of the same kind; H before the update. The task's reward only says
    which are right.

    Parameters
    ----------
    level : `step`: every step has a reward and competes with the steps at the same place of the
        others; `traj`: the mean entropy of the trajectory, the reward on its last step.
    base, bonus : defaults 1 and 0.1 (with `base + bonus = 1` the total reward is conserved).
    least : the outcome from which a trajectory is right (default 1; 0: any above 0).
    eps : least entropy that is inverted (default 1e-8). Right steps of no entropy get no bonus.

    Shapes: `[N]`. Reference: GTPO and GRPO-S, 2508.04349, equations 3, 5, 8 and 9.
    """

    level: Literal["step", "traj"] = "step"
    base: float = 1.0
    bonus: float = 0.1
    least: float = 1.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        require(self.level in ("step", "traj"), self, "level", "step or traj")
        for name in ("base", "bonus", "least"):
            require(0 <= getattr(self, name) < torch.inf, self, name, "at least 0 and finite")
        require(self.eps > 0, self, "eps", "above 0")

    @property
    def needs(self) -> frozenset[str]:
        """`entropy_old`."""
        return frozenset({"entropy_old"})

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards."""
        right, entropy = facts.right(batch, self.least), batch["entropy_old"].to(batch["reward"])
        whole = self.level == "traj"
        entropy = batch.mean(entropy, within="traj") if whole else entropy
        place = batch.size("step", "traj") - batch.scan(torch.ones_like(entropy), 1.0)
        kinds = Batch({}, {**batch.ids, "right": right.long(), "place": place.long()})
        within = ("group", "right") if whole else ("group", "right", "place")
        x = torch.where(right, entropy, 1 / entropy.clamp(min=self.eps))
        total = kinds.sum(x, within, self.level)
        share = x * kinds.size(self.level, within).to(x) / torch.where(total > 0, total, 1.0)
        value = torch.where(right, 1.0, -1.0) * (self.base + self.bonus * share)
        return torch.where(batch.last("traj"), value, 0.0).to(x) if whole else value.to(x)
