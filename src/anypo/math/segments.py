"""Segment operations: reductions and scans over the units that integer ids name.

Every function takes values on the step axis (`x[N]`) and ids (`ids[N]`, any integers), works
without a Python loop over steps, is differentiable in `x`, and returns values on the step axis
or on the dense unit axis. Units are found by id, never by stride.
"""

from __future__ import annotations

import torch
from torch import Tensor


def dense(ids: Tensor) -> tuple[Tensor, int]:
    """Renumber ids (any sortable values) to `0 … K−1` in ascending order, and count them."""
    values, inverse = torch.unique(ids, return_inverse=True)
    return inverse, len(values)


def combine(*ids: Tensor) -> Tensor:
    """One dense id for each distinct tuple of ids: the product of several partitions."""
    out, _ = dense(ids[0])
    for other in ids[1:]:
        second, count = dense(other)
        out, _ = dense(out * count + second)
    return out


def first_index(ids: Tensor, count: int) -> Tensor:
    """Index of the first step of each unit; `ids` are dense, the result has shape `[count]`."""
    steps = torch.arange(len(ids), device=ids.device)
    out = torch.full((count,), len(ids), dtype=torch.long, device=ids.device)
    return out.scatter_reduce(0, ids, steps, "amin")


def last_index(ids: Tensor, count: int) -> Tensor:
    """Index of the last step of each unit; `ids` are dense, the result has shape `[count]`."""
    steps = torch.arange(len(ids), device=ids.device)
    out = torch.zeros(count, dtype=torch.long, device=ids.device)
    return out.scatter_reduce(0, ids, steps, "amax")


def segment_sum(x: Tensor, ids: Tensor, count: int) -> Tensor:
    """Sum of each unit, shape `[count, …]`: `y_k = Σ_{n: id_n = k} x_n`."""
    out = torch.zeros((count, *x.shape[1:]), dtype=x.dtype, device=x.device)
    return out.index_add(0, ids, x)


def segment_count(ids: Tensor, count: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Number of members of each unit, shape `[count]`."""
    return torch.bincount(ids, minlength=count).to(dtype)


def segment_mean(x: Tensor, ids: Tensor, count: int) -> Tensor:
    """Mean of each unit, shape `[count, …]`; a unit without members gives 0."""
    size = segment_count(ids, count, x.dtype).clamp(min=1)
    return segment_sum(x, ids, count) / size.reshape(-1, *[1] * (x.dim() - 1))


def segment_std(x: Tensor, ids: Tensor, count: int, ddof: int = 1) -> Tensor:
    """Two-pass standard deviation of each unit, shape `[count]`.

    `sd_k = sqrt(Σ (x_n − mean_k)² / (n_k − ddof))`; a unit with at most `ddof` members, or with
    equal members, gives exactly 0.
    """
    constant = segment_extreme(x, ids, count, "max") == segment_extreme(x, ids, count, "min")
    centred = x - segment_mean(x, ids, count)[ids]
    freedom = (segment_count(ids, count, x.dtype) - ddof).clamp(min=1)
    variance = segment_sum(centred * centred, ids, count) / freedom
    return torch.where(constant, torch.zeros_like(variance), variance).sqrt()


def segment_extreme(x: Tensor, ids: Tensor, count: int, which: str) -> Tensor:
    """Largest (`which="max"`) or smallest (`"min"`) member of each unit, shape `[count]`."""
    fill = -torch.inf if which == "max" else torch.inf
    out = torch.full((count,), fill, dtype=x.dtype, device=x.device)
    return out.scatter_reduce(0, ids, x, f"a{which}")


def segment_place(x: Tensor, ids: Tensor) -> Tensor:
    """Place of each member in the ascending order of its unit, from 0; ties keep their order."""
    unit, count = dense(ids)
    by_value = torch.argsort(x, stable=True)
    order = by_value[torch.argsort(unit[by_value], stable=True)]
    position = torch.empty_like(order)
    position[order] = torch.arange(len(order), device=x.device)
    size = torch.bincount(unit, minlength=count)
    return position - (size.cumsum(0) - size)[unit]


def segment_rank(x: Tensor, ids: Tensor) -> Tensor:
    """Rank of each member within its unit, 0 for the smallest; ties take their mean rank."""
    rank = segment_place(x, ids).to(x.dtype)
    tie, ties = dense(combine(ids, x))
    return segment_mean(rank, tie, ties)[tie]


def segment_quantile(x: Tensor, ids: Tensor, count: int, q: float) -> Tensor:
    """Quantile `q` of each unit by linear interpolation between order statistics, `[count]`."""
    by_value = torch.argsort(x, stable=True)
    order = by_value[torch.argsort(ids[by_value], stable=True)]
    size = torch.bincount(ids, minlength=count)
    start = size.cumsum(0) - size
    place = q * (size - 1).clamp(min=0).to(x.dtype)
    low, high = place.floor().long(), place.ceil().long()
    ordered = x[order]
    below, above = ordered[start + low], ordered[start + high]
    return below + (above - below) * (place - low)


def scan(x: Tensor, a: Tensor, ids: Tensor) -> Tensor:
    """Reverse linear recurrence `y_n = x_n + a_n · y_{n+1}` within each unit, shape `[N]`.

    Steps of one unit are taken in their order in the batch (they need not be contiguous); the
    last step of a unit gives `y_n = x_n`. Doubling, so `⌈log2(longest unit)⌉` vector passes.
    """
    if not len(x):
        return x
    order = torch.argsort(ids, stable=True)
    y, decay, unit = x[order], a.expand_as(x)[order], ids[order]
    longest = int(torch.unique_consecutive(unit, return_counts=True)[1].max())
    offset = 1
    while offset < longest:
        inside = torch.zeros_like(unit, dtype=torch.bool)
        inside[:-offset] = unit[:-offset] == unit[offset:]
        ahead = torch.where(inside, torch.roll(y, -offset), torch.zeros_like(y))
        reach = torch.where(inside, torch.roll(decay, -offset), torch.zeros_like(decay))
        y = torch.where(inside, y + decay * ahead, y)
        decay = decay * reach
        offset *= 2
    out = torch.empty_like(y)
    out[order] = y
    return out


def shift(x: Tensor, ids: Tensor, fill: Tensor | float = 0.0) -> Tensor:
    """Value of the next step of the same unit, `fill` at the unit's last step; shape `[N]`."""
    order = torch.argsort(ids, stable=True)
    unit = ids[order]
    inside = torch.zeros_like(unit, dtype=torch.bool)
    inside[:-1] = unit[:-1] == unit[1:]
    fill = torch.as_tensor(fill, dtype=x.dtype, device=x.device).expand_as(x)
    moved = torch.where(inside, torch.roll(x[order], -1), fill[order])
    out = torch.empty_like(moved)
    out[order] = moved
    return out
