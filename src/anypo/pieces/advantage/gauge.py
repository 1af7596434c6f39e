"""How uncertain the policy was at a step, on a scale from −1 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage, require

EPS = 1e-8


@dataclass(frozen=True)
class Gauge(Advantage):
    """The entropy of a step against a quantile of the batch, scaled to [−1, 1].

    `h = log H − quantile`, divided by its root mean square, then by its largest value where h > 0
    and by the size of its smallest where h < 0.

    Parameters: `pivot` (the quantile that becomes 0, nearest rank, default 0.8); `mode`:
    `corrected` (default), or `as-published`: the code divides negative h by the negative minimum,
    so that low entropies rise to [0, 1] as well. Equal entropies give 0. To be written beside an
    advantage, for a surrogate to read. It is its own piece because no other scale is centred on a
    quantile. Shapes: `[N]`. Reference: HAPO, 2509.16591.
    """

    pivot: float = 0.8
    mode: Literal["corrected", "as-published"] = "corrected"

    def __post_init__(self) -> None:
        require(0 <= self.pivot <= 1, self, "pivot", "between 0 and 1")
        known = self.mode in ("corrected", "as-published")
        require(known, self, "mode", "corrected or as-published")

    @property
    def needs(self) -> frozenset[str]:
        """`entropy_old`."""
        return frozenset({"entropy_old"})

    def __call__(self, batch: Batch) -> Tensor:
        """The scaled entropy."""
        entropy = batch["entropy_old"].clamp(min=EPS).log()
        middle = entropy.sort().values[round(self.pivot * (len(entropy) - 1))]
        h = entropy - middle
        h = h / (h.square().mean().clamp(min=EPS)).sqrt()
        below = h.min().clamp(max=-EPS)
        below = below.abs() if self.mode == "corrected" else below
        return torch.where(h > 0, h / h.max().clamp(min=EPS), h / below)
