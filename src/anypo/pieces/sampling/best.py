"""Rejection sampling: of the answers to one prompt only the best are trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Sampling, require
from anypo.core.request import Request

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class Best(Sampling):
    """Keep the `count` trajectories of each group with the largest reward, or all that reach a bar.

    A trajectory of reward R stays iff `R ≥ least` and fewer than `count` of its group come before
    it: those with a larger R, and those of equal R with a larger lot.

    Parameters
    ----------
    count : how many stay of a group (default 1: best of n; 0: all that reach `least`).
    least : the smallest reward that is trained on (default −∞); a group whose best is below it is
        dropped.
    differ : drop groups in which all rewards are equal (default no); a group of one stays.

    R is the summed reward after shaping. Selection comes after the advantages, which so see the
    whole group: `Groups(8) >> Best(2)` goes with any recipe, and under a constant advantage it is
    rejection sampling. Raises for one trajectory per prompt, and for options that keep everything.
    Reference: best of n, RAFT, 2304.06767; all right ones, RFT, 2308.01825, and STaR, 2203.14465.
    Its own piece because no other selection compares the answers to one prompt.
    """

    count: int = 1
    least: float = -math.inf
    differ: bool = False

    def __post_init__(self) -> None:
        require(self.count >= 0, self, "count", "at least 0 (0 = all that reach least)")
        require(self.least < math.inf, self, "least", "below ∞")
        selects = self.count > 0 or self.least > -math.inf or self.differ
        require(selects, self, "least", "above −∞ for count=0, which would keep all")

    def check(self, recipe: Recipe) -> None:
        """The best of several."""
        size = recipe.sampling.group
        if size < 2 and self.count > 0:
            raise UsageError("Best needs at least 2 trajectories per prompt: raise the group")
        if self.count >= size and self.count > 0:
            cure = "lower count, or give 0 for all that reach least"
            raise UsageError(f"Best(count={self.count}) keeps whole groups of {size}: {cure}")

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """Nothing more than what is wanted anyway."""
        return None if rounds else wanted

    def thin(self, batch: Batch) -> Batch:
        """The best of each group."""
        outcome = batch.sum(batch["reward"], within="traj").double()
        stays = outcome >= self.least
        if self.count:
            lot = batch.max(batch["lot"], within="traj")
            # Ranks of unequal outcomes lie at least 1 apart, and this share of one below it.
            share = batch.rank(lot, within="group") / batch.size("traj", within="group")
            order = batch.rank(batch.rank(outcome, within="group") + share, within="group")
            stays = stays & (order >= batch.size("traj", within="group") - self.count)
        if self.differ:
            spread = batch.max(outcome, within="group") > batch.min(outcome, within="group")
            stays = stays & (spread | (batch.size("traj", within="group") == 1))
        return batch.take(stays)
