"""The neutral piece of each axis: together they are plain REINFORCE, which is `Recipe()`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.clock import span, work
from anypo.core.errors import UsageError
from anypo.core.piece import (
    LEVELS,
    Advantage,
    Aggregate,
    Likelihood,
    Sampling,
    Surrogate,
    Update,
    require,
)
from anypo.core.request import Request


@dataclass(frozen=True)
class Groups(Sampling):
    """`size` trajectories for each prompt, all kept.

    Parameters: `size` (G, trajectories per prompt; 1 = no groups).
    """

    size: int = 1

    def __post_init__(self) -> None:
        require(self.size >= 1, self, "size", "at least 1")

    @property
    def group(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The group size G."""
        return self.size

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """One request for all prompts, then no more."""
        return None if rounds else _replace(wanted, samples=self.size)


def _replace(request: Request, **changes: Any) -> Request:
    return Request(**{**vars(request), **changes})


@dataclass(frozen=True)
class Return(Advantage):
    """Discounted reward to go, `A_n = Σ_{k≥n} γ^{k−n} r_k` within the trajectory; no baseline.

    Parameters
    ----------
    gamma : in [0, 1] (default 1: an outcome reward reaches every step unchanged).
    ahead : how many rewards count, the step's own included (default 0: all; 1 is greedy).
    within : the unit at whose end rewards stop to count (default `traj`).

    Shapes: `[N]`. Reference: Williams 1992; subsets of future rewards, 2603.06138.
    """

    gamma: float = 1.0
    ahead: int = 0
    within: str = "traj"

    def __post_init__(self) -> None:
        require(0 <= self.gamma <= 1, self, "gamma", "between 0 and 1")
        require(self.ahead >= 0, self, "ahead", "at least 0 (0 = all)")

    def __call__(self, batch: Batch) -> Tensor:
        """Rewards to go."""
        total = batch.scan(batch["reward"], self.gamma, within=self.within)
        beyond = total
        for _ in range(self.ahead):
            beyond = batch.next(beyond, within=self.within)
        return total - self.gamma**self.ahead * beyond if self.ahead else total


@dataclass(frozen=True)
class Reinforce(Surrogate):
    """REINFORCE with a detached, clipped importance weight.

    `objective = A · sg(clip(r, 1−low, 1+high)) · logp`.

    Parameters: `low`, `high` (distance of the bounds from 1; default ∞: not clipped; both 0: the
    weight is 1). With `ratio=Off()` the weight is 1 and this is plain REINFORCE.
    Shapes: `[N]`. Reference: Williams 1992; as an objective with bounds, MiniMax-M1, 2506.13585.
    """

    low: float = math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        require(self.low >= 0, self, "low", "at least 0")
        require(self.high >= 0, self, "high", "at least 0")

    @property
    def needs(self) -> frozenset[str]:
        """`logp`."""
        return frozenset({"logp"})

    def __call__(self, batch: Batch) -> Tensor:
        """The weighted log-likelihood."""
        ratio = batch["log_ratio"].detach().exp()
        weight = ratio.clamp(1 - self.low, 1 + self.high)
        return batch["advantage"] * weight * batch["logp"]


@dataclass(frozen=True, init=False)
class Mean(Aggregate):
    """Nested mean: over `levels[0]` within `levels[1]`, of that within `levels[2]`, and so on.

    `weight_n = Π_i 1 / #(levels[i] units within n's levels[i+1] unit)`; units below `levels[0]` and
    above `levels[-1]` are summed. The usual names:
    token-mean = `Mean("step", "batch")`, seq-mean-token-mean = `Mean("step", "traj", "batch")`,
    seq-mean-token-sum = `Mean("traj", "batch")`, token-sum = `Mean("batch")`.

    Parameters: `levels`; `length`: what divides the steps of a trajectory when `levels` begins with
    step, traj: `"actual"` (their number), `"horizon"` (the run's budget), or a constant.
    Shapes: `[N]`; counts are taken on the whole update batch.
    """

    levels: tuple[str, ...]
    length: int | Literal["actual", "horizon"]

    def __init__(self, *levels: str, length: int | Literal["actual", "horizon"] = "actual") -> None:
        object.__setattr__(self, "levels", tuple(levels))
        object.__setattr__(self, "length", length)
        known = (*LEVELS, "seq", "segment", "edge")
        if not levels or any(level not in known for level in levels):
            raise UsageError(f"Mean{levels}: levels must be out of {', '.join(known)}")
        if length != "actual" and self.levels[:2] != ("step", "traj"):
            raise UsageError(f"Mean{levels}: length={length!r} needs levels step, traj, …")
        if length not in ("actual", "horizon") and not (isinstance(length, int) and length >= 1):
            raise UsageError(f"Mean(length={length}): length must be a whole number, at least 1")

    @classmethod
    def of(cls, **values: Any) -> Mean:
        """The piece with these levels and this length."""
        return cls(*values["levels"], length=values["length"])

    def __call__(self, batch: Batch) -> Tensor:
        """The weights."""
        weight = torch.ones(len(batch), dtype=torch.float64, device=batch.id("batch").device)
        for over, within in zip(self.levels, self.levels[1:], strict=False):
            fixed = self.length != "actual" and (over, within) == ("step", "traj")
            weight = weight / (self._length(batch) if fixed else batch.size(over, within))
        return weight

    def _length(self, batch: Batch) -> Tensor | int:
        if self.length != "horizon":
            return int(self.length)
        table = batch.table("traj")
        if "horizon" not in table:
            raise UsageError('Mean(length="horizon") needs a run; give a number of steps instead')
        return batch.spread("traj", torch.as_tensor(table["horizon"], dtype=torch.float64))


@dataclass(frozen=True)
class Direct(Likelihood):
    """The policy's own columns, as it computes them."""

    def __call__(
        self, policy: Any, batch: Batch, needs: frozenset[str], heads: Any
    ) -> dict[str, Tensor]:
        """`policy.columns(batch, needs, heads)`."""
        return policy.columns(batch, needs, heads)


@dataclass(frozen=True)
class Adam(Update):
    """AdamW on minibatches.

    Parameters
    ----------
    epochs : passes over the collected batch (default 1: on-policy; μ in GRPO).
    minibatches : update batches per pass, cut at whole coupled units (default 1).
    max_grad_norm : global norm to which a gradient is clipped (default 1.0, the habit of language
        models; 0 = off).
    lr_scale : factor on the run's learning rate, made for schedules (default 1).
    beta1, beta2, eps, weight_decay : as in Loshchilov & Hutter, 1711.05101 (decay default 0).
    """

    epochs: int = 1
    minibatches_per_epoch: int = 1
    max_grad_norm: float = 1.0
    lr_scale: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        require(self.epochs >= 1, self, "epochs", "at least 1")
        require(self.minibatches_per_epoch >= 1, self, "minibatches_per_epoch", "at least 1")
        require(self.max_grad_norm >= 0, self, "max_grad_norm", "at least 0 (0 = off)")

    @property
    def visits(self) -> int:
        """Optimizer steps per collected batch."""
        return self.epochs * self.minibatches_per_epoch

    def minibatches(self, batch: Batch, unit: str, generator: torch.Generator) -> Iterable[Batch]:
        """Every pass shuffles the units and cuts them into nearly equal parts."""
        for _ in range(self.epochs):
            if self.minibatches_per_epoch == 1:
                yield batch
                continue
            order = torch.randperm(batch.count(unit), generator=generator)
            for part in order.tensor_split(self.minibatches_per_epoch):
                if len(part):
                    yield batch.take_units(unit, part)

    def optimizer(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        """AdamW, fused: moments in the parameters' own precision."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(parameters, lr, betas, self.eps, self.weight_decay, fused=True)

    def step(self, problem: Any, optimizer: torch.optim.Optimizer, lr: float) -> dict[str, float]:
        """Gradient, clip, step; a non-finite gradient is reported and never applied."""
        optimizer.zero_grad(set_to_none=True)
        metrics = problem.accumulate()
        with span("optimizer"):
            norm = applied(optimizer, lr * self.lr_scale, self.max_grad_norm or math.inf)
        skipped = float(not math.isfinite(norm))
        return {**metrics, "grad_norm": norm, "skipped_updates": skipped}


def applied(optimizer: torch.optim.Optimizer, lr: float, limit: float) -> float:
    """Step along the gradients that are there, clipped to a norm; returns their norm before that.

    Where it is not finite there is no step.
    """
    parameters = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit)) if parameters else 0.0
    for group in optimizer.param_groups:
        group["lr"] = lr
    if parameters and math.isfinite(norm):
        optimizer.step()
        work("optimizer", sum(p.numel() for p in parameters))
    optimizer.zero_grad(set_to_none=True)
    return norm
