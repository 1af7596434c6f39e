"""A learned constant of the prompt beside the log-ratio of its answers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import LogRatio
from anypo.math import segments


@dataclass(frozen=True)
class Partition(LogRatio):
    """`log Z(x)`: the owned head `log_z` on the state at the end of the prompt, for every step.

    Added to a log-ratio of whole answers it is what trajectory balance learns:
    `Ratio("traj", to="ref.base") + Partition()`. It is its own piece because no other learns a
    number of the prompt. Couples the trajectory, whose first step is the one that counts.
    Shapes: `[N]`. Reference: trajectory balance, 2201.13259; FlowRL, 2509.15207.
    """

    @property
    def needs(self) -> frozenset[str]:
        """`log_z`."""
        return frozenset({"log_z"})

    @property
    def couples(self) -> str:
        """The trajectory."""
        return "traj"

    def modules(self) -> dict[str, int]:
        """The head."""
        return {"log_z": 1}

    def __call__(self, batch: Batch) -> Tensor:
        """The head's number at the first step of the trajectory."""
        traj, count = segments.dense(batch.id("traj"))
        return batch["log_z"][segments.first_index(traj, count)[traj]]
