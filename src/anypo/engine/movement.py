"""How far the weights moved in an iteration: whether a learning rate does anything at all."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

SAMPLE = 4096
"""Weights of each tensor that are looked at, evenly spread."""


class Movement:
    """The trainable weights as they stand, to be compared with what becomes of them.

    `moved = ‖θ' − θ‖ / ‖θ‖` and `changed`, the share of weights whose bfloat16 copy is another
    one: a sampler in bfloat16 sees nothing of the others. Both are of a sample of the weights.
    """

    def __init__(self, policy: Any) -> None:
        self.weights = [p for p in policy.module.parameters() if p.requires_grad]
        self.before = [_some(p) for p in self.weights]

    def measure(self) -> dict[str, float]:
        """`weights/moved` and `weights/changed` since the start; empty without weights."""
        pairs = [(old, _some(p)) for old, p in zip(self.before, self.weights)]
        if not (size := sum(old.numel() for old, _ in pairs)):
            return {}
        step = sum(float((new.double() - old.double()).square().sum()) for old, new in pairs)
        norm = sum(float(old.double().square().sum()) for old, _ in pairs)
        other = sum(int((_coarse(new) != _coarse(old)).sum()) for old, new in pairs)
        moved = math.sqrt(step / norm) if norm else math.nan
        return {"weights/moved": moved, "weights/changed": other / size}


def _some(parameter: Tensor) -> Tensor:
    flat = parameter.detach().reshape(-1)
    return flat[:: max(1, len(flat) // SAMPLE)].clone()


def _coarse(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)
