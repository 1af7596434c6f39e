"""Small tasks for generators of points: data to pretrain on, and a reward to reach."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class EightGaussians:
    """Eight modes on a circle, of which one is wanted.

    Mode k has its centre at `radius·(cos kπ/4, sin kπ/4)` and standard deviation `spread`. The
    reward of a point is 1 within `reach` of the wanted centre and 0 elsewhere: a faithful
    generator gets about 1/8.

    Parameters
    ----------
    mode : the wanted mode, 0 … 7.
    radius, spread : of the data; neighbouring centres are `0.765·radius` apart.
    reach : largest distance that counts as a member; 4 standard deviations of the data.
    """

    mode: int = 0
    radius: float = 2.0
    spread: float = 0.15
    reach: float = 0.6

    kind = "generator"
    name = "eight_gaussians"
    dim = 2

    def settings(self) -> dict[str, Any]:
        """What the run's record says of this task."""
        return {"kind": self.kind, "name": self.name, **asdict(self)}

    def centre(self, mode: Tensor) -> Tensor:
        """Centres of modes, `[…, 2]`."""
        angle = mode * (math.pi / 4)
        return self.radius * torch.stack([angle.cos(), angle.sin()], -1)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """`n` points of the mixture, `[n, 2]`."""
        mode = torch.randint(8, (n,), generator=generator)
        return self.centre(mode) + self.spread * torch.randn(n, 2, generator=generator)

    def reward(self, x: Tensor) -> Tensor:
        """1 for members of the wanted mode, 0 for others; `[B, 2] → [B]`."""
        distance = (x - self.centre(torch.tensor(float(self.mode))).to(x)).norm(dim=-1)
        return (distance <= self.reach).to(torch.float32)
