"""The reward whose policy gradient lowers an f-divergence from a target distribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage, require
from anypo.math.divergence import SLOPES, slope


@dataclass(frozen=True)
class PseudoReward(Advantage):
    """`−f'(π/p)` less its running mean, for the target `p ∝ P = ref · exp(R/beta)` of answers.

    `log t = Σ logp_old − (Σ ref + R/beta − log Z)`, `A = −f'(t) − b`. Z is the mean of `P/q` over
    all answers seen, the batch at hand included, with q the sampler's probability; b is the mean
    of `−f'` over about the last `window` answers before this batch. It is its own piece because
    its reward depends on the policy through a whole answer's probability.

    Parameters
    ----------
    f : `kl` (KL(p ‖ π)), `reverse_kl` (KL(π ‖ p)), `js` (default), `tv`, `chi_square` (of p from
        π), `reverse_chi_square`.
    beta : temperature of the target (default 0.1).
    z : Z where it is known; 0 (default) estimates it.
    baseline : b before anything was seen (default 0).
    window : default 1024.

    Shapes: `[N]`, constant on a trajectory. Reference: f-DPG, 2302.08215.
    """

    f: str = "js"
    beta: float = 0.1
    z: float = 0.0
    baseline: float = 0.0
    window: int = 1024

    def __post_init__(self) -> None:
        require(self.f in SLOPES, self, "f", f"one of {', '.join(SLOPES)}")
        require(self.beta > 0, self, "beta", "above 0")
        require(self.z >= 0, self, "z", "at least 0 (0 = estimated)")
        require(abs(self.baseline) < float("inf"), self, "baseline", "a finite number")
        require(self.window >= 1, self, "window", "at least 1")

    @property
    def needs(self) -> frozenset[str]:
        """`logp_old` and the reference."""
        return frozenset({"logp_old", "ref.base"})

    def init(self) -> dict[str, Any]:
        """The running means, and how many answers they have seen."""
        return {"f_baseline": self.baseline, "f_z": self.z, "f_seen": 0.0}

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """The running means with this batch."""
        if not len(batch):
            return state
        count, old = batch.count("traj"), cast(float, state["f_baseline"])
        pseudo = float(batch.mean(_pseudo(self, batch), within="batch", over="traj")[0])
        share = min(1.0, count / min(state["f_seen"] + count, self.window))
        z, seen = float(_partition(self, batch)[0]), state["f_seen"] + count
        new = {"f_baseline": old + share * (pseudo - old), "f_z": z, "f_seen": seen}
        return {**state, **new}

    def __call__(self, batch: Batch) -> Tensor:
        """The centred pseudo-reward."""
        return _pseudo(self, batch) - batch["f_baseline"]


def _target(piece: PseudoReward, batch: Batch) -> Tensor:
    outcome = batch.sum(batch["reward"], within="traj").double()
    return batch.sum(batch["ref.base"], within="traj").double() + outcome / piece.beta


def _partition(piece: PseudoReward, batch: Batch) -> Tensor:
    """The mean importance weight of the target, this batch included; `[N]`, constant."""
    if piece.z:
        return torch.full_like(batch["f_z"], piece.z)
    mass = (_target(piece, batch) - batch.sum(batch["logp_mu"], within="traj")).exp()
    count, seen = batch.size("traj", within="batch"), batch["f_seen"]
    here = batch.sum(mass, within="batch", over="traj")
    return (batch["f_z"] * seen + here) / (seen + count)


def _pseudo(piece: PseudoReward, batch: Batch) -> Tensor:
    logp = batch.sum(batch["logp_old"], within="traj").double()
    log_t = logp - _target(piece, batch) + _partition(piece, batch).log()
    return -slope(log_t, piece.f)
