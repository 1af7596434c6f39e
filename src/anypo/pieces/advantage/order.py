"""Credit that depends on the order of a group's outcomes, or on the order in which they came."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.piece import Advantage, require
from anypo.math import segments, subsets
from anypo.pieces.advantage.group import wants_groups

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class MaxAtK(Advantage):
    """A trajectory's share in the expected best of k out of the group's n outcomes.

    `s_i = C(n, k)^{−1} Σ_{I ∋ i, |I| = k} max_I R`: Σ_i s_i ∇log π_i is unbiased for the gradient
    of E[max of k], summed over the group.

    Parameters
    ----------
    k : size of the subsets (default 2); smaller groups get 0.
    baseline : `off` (default, the paper's signal: equal outcomes give k/n · R); `loo-1`: every
        subset's best less the best of the k − 1 others, which i cannot change; `loo`: less k/n
        times the mean best of k of the others (k < n; for k = 1, RLOO over n).

    With a baseline, equal outcomes give exactly 0. Raises when k exceeds what the group can give.
    Shapes: `[N]`. Reference: 2510.23393; baselines, PKPO, 2505.15201 (id from memory). Its own
    piece because the weights are those of order statistics.
    """

    k: int = 2
    baseline: Literal["off", "loo", "loo-1"] = "off"

    def __post_init__(self) -> None:
        require(self.k >= 1, self, "k", "at least 1")
        require(self.baseline in ("off", "loo", "loo-1"), self, "baseline", "off, loo or loo-1")
        require(self.baseline != "loo-1" or self.k > 1, self, "baseline", "off or loo for k = 1")

    def check(self, recipe: Recipe) -> None:
        """Groups that have subsets of k, and with `loo` without the trajectory itself."""
        wants_groups(self, recipe, max(2, self.k + (self.baseline == "loo")))

    def __call__(self, batch: Batch) -> Tensor:
        """The shares."""
        rows = batch.at("traj")
        value, group = rows["reward"].double(), rows.id("group")
        credit = subsets.containing(value, group, self.k)
        if self.baseline != "off":
            others = self.k - (self.baseline == "loo-1")
            size = rows.size("traj", "group")
            rest = self.k / size * subsets.excluding(value, group, others)
            equal = rows.max(value, "group", "traj") == rows.min(value, "group", "traj")
            enough = (size >= self.k) & (size > others) & ~equal
            credit = torch.where(enough, credit - rest, torch.zeros_like(credit))
        return batch.spread("traj", credit).to(batch["reward"])


@dataclass(frozen=True)
class Kalman(Advantage):
    """The outcome against a scalar Kalman filter that has read the group's outcomes up to its own.

    `P⁻ = P + Q`, `K = P⁻/(P⁻ + R)`, `x ← x + K(r_i − x)`, `P ← (1 − K)P⁻`,
    `A_i = (r_i − x)/(√P + eps)` with x and P after r_i.

    Parameters: `process_var` (Q, default 1e-5), `meas_var` (R, 1e-2), `init_mean` (x before the
    first, 0), `init_var` (P, 1), `eps` (1e-8).
    The outcomes of a group are read in the order of their lots, drawn when they were collected, so
    the order in the batch does not matter. Equal outcomes do not give 0: x starts at `init_mean`.
    Shapes: `[N]`. Reference: KRPO, 2505.07527. Its own piece because no other baseline has an
    order.
    """

    process_var: float = 1e-5
    meas_var: float = 1e-2
    init_mean: float = 0.0
    init_var: float = 1.0
    eps: float = 1e-8

    def __post_init__(self) -> None:
        require(0 <= self.process_var < math.inf, self, "process_var", "at least 0 and finite")
        require(0 < self.meas_var < math.inf, self, "meas_var", "above 0 and finite")
        require(math.isfinite(self.init_mean), self, "init_mean", "finite")
        require(0 < self.init_var < math.inf, self, "init_var", "above 0 and finite")
        require(self.eps >= 0, self, "eps", "at least 0")

    def check(self, recipe: Recipe) -> None:
        """Groups of at least two: the first outcome is compared with itself alone."""
        wants_groups(self, recipe)

    def __call__(self, batch: Batch) -> Tensor:
        """The innovations."""
        lot = batch.min(batch["lot"], within="traj")
        place = batch.rank(lot, within="group", over="traj")
        rows = batch.with_({"place": place}).at("traj")
        gain, variance = self._gains(int(place.max()) + 1)
        # The filter is a scan from the last outcome read to the first.
        group, _ = segments.dense(rows.id("group"))
        order = torch.argsort(-rows["place"], stable=True)
        k = gain[rows["place"].long()]
        value = rows["reward"].double()
        first = torch.where(rows["place"] == 0, self.init_mean * (1 - k), torch.zeros_like(k))
        read = (k * value + first)[order]
        mean = torch.empty_like(read)
        mean[order] = segments.scan(read, (1 - k)[order], group[order])
        width = variance[rows["place"].long()].sqrt() + self.eps
        return batch.spread("traj", (value - mean) / width).to(batch["reward"])

    def _gains(self, count: int) -> tuple[Tensor, Tensor]:
        """K and P after each of the first `count` outcomes; they depend on no outcome."""
        gains, variances, variance = [], [], self.init_var
        for _ in range(count):
            variance += self.process_var
            gains.append(variance / (variance + self.meas_var))
            variance *= 1 - gains[-1]
            variances.append(variance)
        return torch.tensor(gains, dtype=torch.float64), torch.tensor(
            variances, dtype=torch.float64
        )
