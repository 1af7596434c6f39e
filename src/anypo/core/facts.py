"""What a reward says of a trajectory besides its number: a judge's flag, a cluster, hits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError


def values(batch: Batch, name: str, reader: str) -> list[Any]:
    """A fact of every trajectory, in the order of the table of `traj`.

    Raises `UsageError`, naming the piece that reads it, where no reward and no dataset gives it.
    """
    table = batch.table("traj")
    if name not in table:
        raise UsageError(
            f"{reader} reads {name!r} of every trajectory: let the reward function return "
            f'{{"score": …, "{name}": …}} for each completion, or add a column {name!r} to the data'
        )
    return list(table[name])


def number(batch: Batch, name: str, reader: str) -> Tensor:
    """A numeric fact on the step axis, float64 `[N]`; None and False are 0, True is 1."""
    found = torch.tensor([float(v or 0) for v in values(batch, name, reader)], dtype=torch.float64)
    return found[batch.id("traj")]


def label(batch: Batch, name: str, reader: str) -> Tensor:
    """A fact of any type as an integer, equal for equal values; int64 `[N]`."""
    codes: dict[Any, int] = {}
    found = [codes.setdefault(str(v), len(codes)) for v in values(batch, name, reader)]
    return torch.tensor(found)[batch.id("traj")]


def right(batch: Batch, least: float = 1.0) -> Tensor:
    """Whether a trajectory's outcome is at least `least`, or above 0 for `least=0`; bool `[N]`."""
    outcome = batch.sum(batch["reward"], within="traj")
    return outcome >= least if least > 0 else outcome > 0
