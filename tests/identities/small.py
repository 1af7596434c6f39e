"""Batches of a few steps, for identities that a reader can check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch


def steps(
    lengths: Sequence[int],
    groups: Sequence[int] | None = None,
    table: dict[str, Any] | None = None,
    **columns: Sequence[float] | Tensor,
) -> Batch:
    """Trajectories of these lengths in these groups (default: one), float64 columns."""
    traj = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    group = torch.tensor(groups or [0] * len(lengths))[traj]
    ids = {"traj": traj, "seq": traj, "group": group, "prompt": group}
    given = {k: torch.as_tensor(x, dtype=torch.float64) for k, x in columns.items()}
    return Batch(given, ids, {"traj": table or {}})


def last(lengths: Sequence[int], outcomes: Sequence[float]) -> list[float]:
    """Rewards per step that stand on the last one of each trajectory."""
    return [x for n, r in zip(lengths, outcomes, strict=True) for x in [0.0] * (n - 1) + [r]]


def close(got: Tensor, expected: Sequence[float] | Sequence[Sequence[float]]) -> None:
    """Equal to rounding in float64."""
    want = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(got.double(), want, rtol=1e-12, atol=1e-13)
