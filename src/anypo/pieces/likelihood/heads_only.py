"""Training heads while the policy stands still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Likelihood


@dataclass(frozen=True)
class HeadsOnly(Likelihood):
    """The policy's columns with gradients for the owned heads alone: a warm-up of the critic.

    Shapes: `[N, …]`. Reference: VC-PPO, 2503.01491 (value pretraining under the frozen policy).
    """

    def __call__(
        self, policy: Any, batch: Batch, needs: frozenset[str], heads: Any
    ) -> dict[str, Tensor]:
        """`policy.columns(batch, needs, heads)` with the policy's parameters held."""
        held = [p for p in policy.module.parameters() if p.requires_grad]
        for p in held:
            p.requires_grad_(False)
        try:
            return policy.columns(batch, needs, heads)
        finally:
            for p in held:
                p.requires_grad_(True)
