"""Rewards of the parts of an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anypo.core import facts
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Reward, require


@dataclass(frozen=True)
class Place(Reward):
    """Put a list of rewards, a fact of every trajectory, on the ends of its segments.

    `reward_n = scale · d(k) · x_k` on the last step of the k-th segment, for the list x; 0 on every
    other step. Without segments every step is one, and each list must be as long as its trajectory
    has steps. The task's own reward is replaced.

    Parameters: `fact` (name of the list, default `parts`), `discount` (d: `off`, or `log`:
    `1/log2(k + 2)` for k from 0, the gain of a ranked list), `scale` (default 1).
    Segments beyond the list get 0; a list beyond the segments is dropped. Raises `UsageError`
    without segments (see `Split`) where a list is not as long as its trajectory. Shapes: `[N]`.
    Reference: Rank-GRPO, 2510.20150; blockwise advantages, 2602.10231.
    """

    fact: str = "parts"
    discount: Literal["off", "log"] = "off"
    scale: float = 1.0

    def __post_init__(self) -> None:
        require(self.fact != "", self, "fact", "the name of a fact")
        require(self.discount in ("off", "log"), self, "discount", "off or log")
        require(math.isfinite(self.scale), self, "scale", "finite")

    @property
    def needs(self) -> frozenset[str]:
        """The list."""
        return frozenset({f"fact.{self.fact}"})

    def __call__(self, batch: Batch) -> Tensor:
        """The rewards of the parts."""
        lists = [x or [] for x in facts.values(batch, self.fact, "Place")]
        traj = batch.id("traj").tolist()
        stage, ends = self._ends(batch, lists)
        rewards = [
            self._part(lists[i], k) if end else 0.0
            for i, k, end in zip(traj, stage, ends, strict=True)
        ]
        return torch.tensor(rewards, dtype=torch.float64).to(batch["reward"])

    def _ends(self, batch: Batch, lists: list[list[float]]) -> tuple[list[int], list[bool]]:
        """Of every step the number of its segment, and whether it ends it."""
        if "segment" in batch.ids:
            return batch.id("stage").tolist(), batch.last("segment").tolist()
        left = batch.scan(torch.ones(len(batch)), 1.0, within="traj").long()
        size = batch.size("step", "traj").long()
        if any(len(lists[i]) != n for i, n in zip(batch.id("traj").tolist(), size.tolist())):
            raise UsageError(
                f"Place needs segments, or a list {self.fact!r} with a number for every token: add "
                "Split() to the sampling"
            )
        return (size - left).tolist(), [True] * len(batch)

    def _part(self, parts: list[float], k: int) -> float:
        weight = 1 / math.log2(k + 2) if self.discount == "log" else 1.0
        return self.scale * weight * float(parts[k]) if k < len(parts) else 0.0
