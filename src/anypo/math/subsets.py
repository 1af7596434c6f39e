"""The expected best of a subset, exactly: weights of order statistics."""

from __future__ import annotations

from math import comb

import torch
from torch import Tensor

from anypo.math import segments


def _sorted(x: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Order by unit and value; each sorted row's dense unit, place from 1, and unit sizes."""
    unit, count = segments.dense(ids)
    place = segments.segment_place(x, ids)
    order = torch.argsort(unit * len(x) + place)
    return order, unit[order], place[order] + 1, torch.bincount(unit, minlength=count)


def _shares(place: Tensor, size: Tensor, shift: int, pick: int, k: int, fewer: int) -> Tensor:
    """`C(place − shift, pick) / C(size − fewer, k)`, 0 where the unit has no such subset."""
    pairs = torch.stack([place, size], 1).tolist()
    found = [
        comb(j - shift, pick) / comb(n - fewer, k) if n - fewer >= k and j >= shift else 0.0
        for j, n in pairs
    ]
    return torch.tensor(found, dtype=torch.float64, device=place.device)


def containing(x: Tensor, ids: Tensor, k: int) -> Tensor:
    """Sum of the maxima of all k-subsets of a unit that contain a member, over their number.

    `s_i = C(n, k)^{−1} Σ_{I ∋ i} max_I x`. With members in ascending order it is
    `[C(i−1, k−1)·x_i + Σ_{j>i} C(j−2, k−2)·x_j] / C(n, k)`. Units with fewer than k members give 0.
    Shapes: `x`, `ids` and the result `[B]`.
    """
    order, unit, place, sizes = _sorted(x, ids)
    ascending, size = x[order], sizes[unit]
    own = _shares(place, size, 1, k - 1, k, 0) * ascending
    later = _shares(place, size, 2, k - 2, k, 0) * ascending if k > 1 else torch.zeros_like(own)
    out = torch.empty_like(own)
    out[order] = own + segments.scan(later, torch.ones_like(later), unit) - later
    return out


def excluding(x: Tensor, ids: Tensor, k: int) -> Tensor:
    """Mean of the maxima of all k-subsets of a unit that do not contain a member.

    With members in ascending order, `[Σ_{j<i} C(j−1, k−1)·x_j + Σ_{j>i} C(j−2, k−1)·x_j] /
    C(n−1, k)`. Units with at most k members give 0. Shapes: `x`, `ids` and the result `[B]`.
    """
    order, unit, place, sizes = _sorted(x, ids)
    ascending, size = x[order], sizes[unit]
    before = _shares(place, size, 1, k - 1, k, 1) * ascending
    after = _shares(place, size, 2, k - 1, k, 1) * ascending
    ones = torch.ones_like(before)
    total = segments.segment_sum(before, unit, len(sizes))[unit]
    lower = total - segments.scan(before, ones, unit)
    out = torch.empty_like(before)
    out[order] = lower + segments.scan(after, ones, unit) - after
    return out
