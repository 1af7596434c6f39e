"""Thoughts that end as soon as the answer is there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.piece import Sampling, require
from anypo.core.request import Request


@dataclass(frozen=True)
class Condense(Sampling):
    """Cut out of right answers what they still thought after they had the answer.

    A reward says of each answer at which of its tokens the thought ends (`think_end`, from 0, the
    token itself is kept) and after how many tokens the answer is there (`valid_length`; 0: never).
    The tokens in between leave the network's input and the batch before anything is rewarded, so
    lengths are those of what remains, and `think_end` moves to its new place.

    Parameters: `least` (the reward from which an answer is right, default 1).
    What the sampler recorded (`logp_mu`) is not the probability of the shortened text. Use as
    `Groups(8) >> Condense()`; a batch whose network reads no tokens stays as it is.
    Reference: LC-R1, 2506.14755. Its own piece because nothing else edits an answer.
    """

    least: float = 1.0

    def __post_init__(self) -> None:
        require(self.least >= 0, self, "least", "at least 0 (0: any reward above 0)")

    @property
    def needs(self) -> frozenset[str]:
        """Where the thought ends, and where it could."""
        return frozenset({"fact.think_end", "fact.valid_length"})

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """Nothing more than what is wanted anyway."""
        return None if rounds else wanted

    def mark(self, batch: Batch) -> Batch:
        """The shortened answers."""
        if "tokens" not in batch.inputs:
            return batch
        end = facts.number(batch, "think_end", "Condense")
        valid = facts.number(batch, "valid_length", "Condense")
        cut = facts.right(batch, self.least) & (valid > 0) & (end > valid)
        place = batch.size("step", "traj") - batch.scan(torch.ones_like(end), 1.0)
        gone = cut & (place >= valid) & (place < end)
        return _without(batch, gone, torch.where(cut, valid, end)) if bool(gone.any()) else batch


def _without(batch: Batch, gone: Tensor, end: Tensor) -> Batch:
    """The batch without some steps, also in the network's input; thoughts end where `end` says."""
    seq, position, rows = batch.id("seq"), batch.id("position"), list(batch.inputs["tokens"])
    for k in torch.unique(seq[gone]).tolist():
        kept = torch.ones(len(rows[k]), dtype=torch.bool)
        kept[position[gone & (seq == k)]] = False
        rows[k] = rows[k][kept]
    earlier = batch.sum(gone.double(), "seq") - batch.scan(gone.double(), 1.0, "seq")
    ends = torch.zeros(batch.count("traj"), dtype=torch.long)
    ends[batch.id("traj")] = end.long()
    table = {**batch.table("traj"), "think_end": ends.tolist()}
    ids = {**batch.ids, "position": position - earlier.long()}
    tables = {**batch.tables, "traj": table}
    return replace(batch, ids=ids, tables=tables, inputs={**batch.inputs, "tokens": rows}).take(
        ~gone
    )
