"""Cutting answers into segments at a marker: lines, steps, list items, blocks."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Sampling, require
from anypo.core.request import Request


@dataclass(frozen=True)
class Split(Sampling):
    """Give every step the ids `segment` (its part of the answer) and `stage` (which part it is).

    A segment ends with the token in which the marker ends; the last one ends with the answer.
    `stage` counts segments from 0 within each trajectory, and later ones than `most` share the
    last number.

    Parameters
    ----------
    marker : text between segments (default a line break).
    most : largest number of segments (default 0: any).
    bare : leave out the tokens that hold nothing but marker, and the one that ends the answer; what
        they were rewarded goes to the last token that stays (default no).
    stratum : name of a fact (one label, or one for each segment) of which an id `stratum` is made:
        0 in the first segment, in the others the label of the segment before (default none).

    A batch that has segments already, of an environment or of a program, keeps them. Use as
    `Groups(8) >> Split()`. Raises `UsageError` where tokens have no text.
    Shapes: ids `[N]`. Reference: Rank-GRPO, 2510.20150; blockwise advantages, 2602.10231.
    """

    marker: str = "\n"
    most: int = 0
    bare: bool = False
    stratum: str = ""

    def __post_init__(self) -> None:
        require(self.marker != "", self, "marker", "some text")
        require(self.most >= 0, self, "most", "at least 0 (0 = any)")

    @property
    def needs(self) -> frozenset[str]:
        """The fact, if any."""
        return frozenset({f"fact.{self.stratum}"} if self.stratum else ())

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """The same, with the text of every token."""
        return None if rounds else replace(wanted, texts=True)

    def mark(self, batch: Batch) -> Batch:
        """The batch with its segments, and with their strata."""
        if "segment" not in batch.ids:
            batch = _cut(self, batch)
        if not self.stratum or "stratum" in batch.ids:
            return batch
        return replace(batch, ids={**batch.ids, "stratum": _strata(self, batch)})


def _cut(piece: Split, batch: Batch) -> Batch:
    table = batch.table("traj")
    if "texts" not in table:
        raise UsageError("Split cuts text: it needs a language policy, or a batch with segments")
    found = [pair for texts in table["texts"] for pair in stages(texts, piece.marker)]
    if len(found) != len(batch):
        raise UsageError("Split must come before a piece that drops steps")
    stage = torch.tensor([k for k, _ in found])
    stage = stage.clamp(max=piece.most - 1) if piece.most else stage
    begins = (stage != stage.roll(1)) | (batch.id("traj") != batch.id("traj").roll(1))
    begins[0] = True
    ids = {**batch.ids, "segment": begins.long().cumsum(0) - 1, "stage": stage}
    batch = replace(batch, ids=ids)
    held = torch.tensor([not empty for _, empty in found])
    return _bare(batch, held) if piece.bare and bool(held.any()) else batch


def stages(texts: list[str], marker: str) -> list[tuple[int, bool]]:
    """Of every token how many markers end before it, and whether nothing but marker is in it."""
    whole = "".join(texts)
    spans = [m.span() for m in re.finditer(re.escape(marker), whole)]
    ends, inside = [end for _, end in spans], [False] * len(whole)
    final = bisect_right(ends, len(whole) - 1)  # what ends an answer has no text of its own
    for start, end in spans:
        inside[start:end] = [True] * (end - start)
    bounds = [0, *accumulate(len(text) for text in texts)]
    return [
        (min(bisect_right(ends, start), final), all(inside[start:end]))
        for start, end in pairwise(bounds)
    ]


def _bare(batch: Batch, held: Tensor) -> Batch:
    """Only the steps that hold something; the last of them gets what the others were rewarded."""
    spare = batch.sum(torch.where(held, 0.0, batch["reward"]), within="traj")
    batch = batch.with_({"reward": batch["reward"], "spare": spare}).take(held)
    reward = torch.where(batch.last("traj"), batch["reward"] + batch["spare"], batch["reward"])
    columns = {k: x for k, x in batch.columns.items() if k != "spare"}
    return replace(batch, columns={**columns, "reward": reward})


def _strata(piece: Split, batch: Batch) -> Tensor:
    given = facts.values(batch, piece.stratum, "Split")
    codes: dict[str, int] = {}
    found = []
    for traj, stage in zip(batch.id("traj").tolist(), batch.id("stage").tolist(), strict=True):
        labels = given[traj]
        if isinstance(labels, (list, tuple)):
            label = labels[stage - 1] if 0 < stage <= len(labels) else None
        else:
            label = labels
        found.append(1 + codes.setdefault(str(label), len(codes)) if stage else 0)
    return torch.tensor(found)
