"""What an owned head says of a whole answer, where other methods have a log-ratio."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LogRatio


@dataclass(frozen=True)
class Worth(LogRatio):
    """`h_n = r(x, y)`: the owned head `reward_model` at the end of the answer, for all its steps.

    The head reads the state before the last step: where that is the end token, all that was said
    and not how it ended. A surrogate that compares log-ratios of answers then compares rewards:
    `Preference(beta=1)` on it is the loss of a reward model. It is its own piece because no other
    puts a head in the place of a policy's ratio. Couples the trajectory. Shapes: `[N]`.
    Reference: InstructGPT, 2203.02155.
    """

    @property
    def needs(self) -> frozenset[str]:
        """`reward_model`."""
        return frozenset({"reward_model"})

    @property
    def couples(self) -> str:
        """The trajectory."""
        return "traj"

    def modules(self) -> dict[str, int]:
        """The head."""
        return {"reward_model": 1}

    def __call__(self, batch: Batch) -> Tensor:
        """The head's number at the last step of the trajectory."""
        worth = batch["reward_model"]
        last = torch.where(batch.last("traj"), worth, torch.zeros_like(worth))
        return batch.sum(last, within="traj")
