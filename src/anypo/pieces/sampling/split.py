"""Cutting answers into segments at a marker: lines, steps, list items, blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

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

    Parameters: `marker` (text between segments, default a line break), `most` (largest number of
    segments, default 0: any). A batch that has the ids already, of an environment or of a program,
    keeps them. Use as `Groups(8) >> Split()`. Raises `UsageError` where tokens have no text.
    Shapes: ids `[N]`. Reference: Rank-GRPO, 2510.20150; blockwise advantages, 2602.10231.
    """

    marker: str = "\n"
    most: int = 0

    def __post_init__(self) -> None:
        require(self.marker != "", self, "marker", "some text")
        require(self.most >= 0, self, "most", "at least 0 (0 = any)")

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """The same, with the text of every token."""
        return None if rounds else replace(wanted, texts=True)

    def keep(self, batch: Batch) -> Batch:
        """The batch with its segments."""
        if not len(batch) or "segment" in batch.ids:
            return batch
        table = batch.table("traj")
        if "texts" not in table:
            raise UsageError(
                "Split cuts text: it needs a language policy, or a batch with segments"
            )
        stages = [s for texts in table["texts"] for s in self._stages(texts)]
        stage = torch.tensor(stages)
        if len(stage) != len(batch):
            raise UsageError("Split must come before a piece that drops steps")
        begins = (stage != stage.roll(1)) | (batch.id("traj") != batch.id("traj").roll(1))
        begins[0] = True
        segment = begins.long().cumsum(0) - 1
        return replace(batch, ids={**batch.ids, "segment": segment, "stage": stage})

    def _stages(self, texts: list[str]) -> list[int]:
        whole, stages, position = "", [], 0
        for text in texts:
            whole += text
            stages.append(position)
            position = whole.count(self.marker)
        return [min(s, self.most - 1) for s in stages] if self.most else stages
