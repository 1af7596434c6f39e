"""Several processes as ranks of one run, by torch.distributed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from anypo.backends.local import Local


@dataclass
class Ranks(Local):
    """The local backend as one rank of an initialised process group.

    Every rank holds the whole batch and its columns; forward passes are shared out by micro-batch,
    and columns and gradients are summed. Weights were fixed on the whole update batch, so partial
    sums are exact and no formula knows a rank.
    """

    def __post_init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def sum_(self, tensors: list[Tensor]) -> None:
        """Sum over ranks in place, one message for each dtype."""
        for dtype in sorted({t.dtype for t in tensors}, key=str):
            same = [t for t in tensors if t.dtype == dtype]
            flat = torch.cat([t.reshape(-1) for t in same])
            dist.all_reduce(flat)
            offset = 0
            for t in same:
                t.copy_(flat[offset : offset + t.numel()].view_as(t))
                offset += t.numel()
