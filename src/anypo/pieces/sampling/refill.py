"""Dynamic sampling: groups without signal are replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anypo.core.batch import Batch
from anypo.core.piece import Sampling, require
from anypo.core.request import Request


@dataclass(frozen=True)
class Refill(Sampling):
    """Keep a group iff its rewards differ, and ask until as many groups are kept as were wanted.

    `keep g ⇔ std_g(Σ_t reward) > 0`; a group of one is kept. Surplus groups are dropped.

    Parameters: `rounds` (most requests for one batch, default 10, the paper's script). When they
    are used up, the batch stays smaller, and the run says so.

    Use as `Groups(G) >> Refill()`. The filter reads the task's reward before shaping if the rollout
    recorded it as `score`, so an overlong penalty cannot rescue a uniform group.
    Deviation: the paper's code raises at the limit; a smaller batch is still an unbiased one.
    Reference: DAPO, 2503.14476, section 3.2.
    """

    rounds: int = 10

    def __post_init__(self) -> None:
        require(self.rounds >= 1, self, "rounds", "at least 1")

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """The groups that are still missing."""
        missing = wanted.prompts - (batch.count("group") if len(batch) else 0)
        if missing <= 0 or rounds >= self.rounds:
            return None
        return replace(wanted, prompts=missing)

    def keep(self, batch: Batch) -> Batch:
        """The groups whose outcomes differ."""
        if not len(batch):
            return batch
        score = batch["score"] if "score" in batch else batch["reward"]
        outcome = batch.sum(score, within="traj")
        spread = batch.std(outcome, over="traj", within="group", ddof=0)
        alone = batch.size("traj", within="group") == 1
        return batch.take((spread > 0) | alone)
