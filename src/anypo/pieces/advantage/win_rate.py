"""How often an answer wins against the others of its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Advantage

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class WinRate(Advantage):
    """Share of the group's other answers with a smaller reward, ties half, minus 1/2.

    `A_i = (1/(k−1)) Σ_{j≠i} [1(R_i > R_j) + ½·1(R_i = R_j)] − ½`, between −½ and ½: an estimate of
    the probability of winning against the policy, when a reward decides who wins. It is its own
    piece because only the order of rewards counts, which no centring or scaling gives.

    A group of one, or with equal rewards, gives exactly 0. Raises when the recipe samples one
    trajectory per prompt. Shapes: `[N]`, constant on a trajectory. Reference: SPPO, 2405.00675.
    """

    def check(self, recipe: Recipe) -> None:
        """A win wants an opponent."""
        if recipe.sampling.group < 2:
            raise UsageError("WinRate needs at least 2 trajectories per prompt: raise the group")

    def __call__(self, batch: Batch) -> Tensor:
        """The centred win rate."""
        rank = batch.rank(batch.sum(batch["reward"], within="traj"), within="group")
        others = batch.size("traj", within="group").to(rank) - 1
        return torch.where(others > 0, rank / others.clamp(min=1) - 0.5, torch.zeros_like(rank))
