"""Which steps of a batch are chosen: the largest of a value, ties and random choices by lot."""

from __future__ import annotations

import torch
from torch import Tensor


def largest(value: Tensor, lot: Tensor, count: int) -> Tensor:
    """The `count` largest members, bool `[N]`; −∞ is never chosen, equal members go by lot.

    `lot` is a number per member, so that the choice depends on no order; the smaller one wins.
    """
    by_lot = torch.argsort(lot, stable=True)
    order = by_lot[torch.argsort(value[by_lot], descending=True, stable=True)]
    chosen = torch.zeros_like(value, dtype=torch.bool)
    chosen[order[:count]] = True
    return chosen & (value > -torch.inf)


def quota(share: float, total: int) -> int:
    """How many a share of `total` is, at least one: `max(1, ⌊share·total⌋)`."""
    return max(1, int(share * total))


def covariance(x: Tensor, y: Tensor) -> Tensor:
    """Each member's part of the covariance of `x` and `y`: `(x − mean x)(y − mean y)`; `[N]`."""
    return (x - x.mean()) * (y - y.mean())
