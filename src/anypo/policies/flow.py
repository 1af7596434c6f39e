"""`FlowPolicy`: a flow-matching generator of points, whose steps are denoising transitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.rng import generator
from anypo.math import sde
from anypo.policies.networks import TimedMLP
from anypo.policies.small import SmallPolicy


class DataTask(Protocol):
    """What pretraining needs of a task: hashable, with a dimension and data."""

    @property
    def dim(self) -> int:
        """Dimensions of a point."""
        ...

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """`n` points of the data, `[n, dim]`."""
        ...


class FlowPolicy(SmallPolicy):
    """Denoising by the Flow-GRPO SDE under a velocity network `v(x, t)`.

    `x_next ~ N(mean(x, v, t), std²·I)`, see `anypo.math.sde`. Reads the batch inputs `x[S, d]`,
    `t[S]`, `dt[S]`, `scale[S]` (the diffusion coefficient) and `x_next[S, d]`, one row per `seq`;
    every column of a step depends on its own row alone.

    Parameters
    ----------
    dim : dimensions of a point.
    steps : denoising steps in training (10, the paper's).
    noise : a of the diffusion coefficient (0.7, the paper's); positive, or no step has a density.
    shift : of the time schedule (1: even steps).
    reduce : `"mean"` (the reference code) or `"sum"` over dimensions in `logp`.
    hidden, depth : units and number of hidden layers of the network.
    lr : learning rate for Adam.
    seed : of the initial weights, of pretraining, and of the heads'.

    The step is computed in float64 from the network's velocities: the recorded log-probability
    divides differences of points by a small `std`. Reference: arXiv 2505.05470.
    """

    kind = "generator"
    name = "flow"
    recorded = "kind name dim steps noise shift reduce hidden depth seed"
    offers = frozenset({"logp", "mean", "value", "value_next"})
    temperature = 1.0

    def __init__(
        self,
        dim: int = 2,
        *,
        steps: int = 10,
        noise: float = 0.7,
        shift: float = 1.0,
        reduce: sde.Reduce = "mean",
        hidden: int = 64,
        depth: int = 3,
        lr: float = 1e-3,
        seed: int = 0,
    ) -> None:
        if noise <= 0 or steps < 1:
            raise UsageError(
                f"a flow policy needs steps ≥ 1 and noise > 0, not steps={steps}, noise={noise}: "
                "without noise a step has no density to train; FlowPolicy.sample runs the "
                "deterministic flow"
            )
        self.dim, self.steps, self.noise, self.shift = dim, steps, noise, shift
        self.reduce: sde.Reduce = reduce
        self.hidden, self.depth, self.lr, self.seed = hidden, depth, lr, seed
        self.module: nn.Module = self._network(dim, "policy")

    @classmethod
    def for_task(cls, task: DataTask, *, iterations: int = 2000, **settings: Any) -> FlowPolicy:
        """A policy pretrained by flow matching on the task's data (remembered in this process)."""
        policy = cls(task.dim, **settings)
        sizes = (policy.hidden, policy.depth, policy.seed)
        policy.module.load_state_dict(_pretrained(task, *sizes, iterations))
        return policy

    def _network(self, outputs: int, purpose: str) -> TimedMLP:
        stream = generator(self.seed, purpose, outputs)
        return TimedMLP(self.dim, outputs, self.hidden, self.depth, stream)

    def head(self, outputs: int) -> nn.Module:
        """A separate network of a point and its time, for example a critic (`outputs` 1)."""
        return self._network(outputs, "head")

    def _mean(self, x: Tensor, t: Tensor, dt: Tensor, scale: Tensor) -> Tensor:
        """Mean of the next point, float64 `[N, d]`."""
        v = self.module(self._to(x), self._to(t))
        return sde.step_mean(*(u.double().to(v.device) for u in (x, v, t, dt, scale)))

    @torch.no_grad()
    def denoise(self, noise: Tensor) -> dict[str, Tensor]:
        """Paths from noise to data, with all that was recorded on the way.

        `noise[B, steps + 1, d]` is standard normal: the starting point, then the noise of each
        step. Returns `x`, `x_next` `[B, steps, d]` and `t`, `dt`, `scale`, `std`, `logp`
        `[B, steps]`; `x` and `x_next` in the network's precision, the others in float64.
        """
        times = sde.schedule(self.steps, self.shift)
        x, path = self._to(noise[:, 0]), []
        for k in range(self.steps):
            t, dt = times[k].expand(len(x)), (times[k + 1] - times[k]).expand(len(x))
            scale = sde.noise_scale(t, times[1], self.noise)
            mean, std = self._mean(x, t, dt, scale), sde.step_std(scale, dt)
            # Rounded before it is scored, so that the log-probability is that of the point kept.
            x_next = self._to(mean + std[:, None] * noise[:, k + 1].double())
            logp = sde.step_logp(x_next.double(), mean, std, self.reduce)
            path.append((x, x_next, t, dt, scale, std, logp))
            x = x_next
        names = ("x", "x_next", "t", "dt", "scale", "std", "logp")
        return {name: torch.stack(rows, 1) for name, rows in zip(names, zip(*path), strict=True)}

    @torch.no_grad()
    def sample(self, n: int, *, steps: int = 40, seed: int = 0) -> Tensor:
        """`n` points of the deterministic flow in Euler steps, `[n, dim]` (40 is the paper's)."""
        times = sde.schedule(steps, self.shift)
        x = self._to(torch.randn(n, self.dim, generator=generator(seed, "sample")))
        for k in range(steps):
            t = self._to(times[k].expand(n))
            x = x + self.module(x, t) * float(times[k + 1] - times[k])
        return x

    def columns(
        self, batch: Batch, needs: frozenset[str], heads: Mapping[str, nn.Module]
    ) -> dict[str, Tensor]:
        """The named columns: `logp[N]` of the recorded `x_next`, `mean[N, d]`, `value[N]`, ….

        `value`, like the column of every head, is the head's at `(x, t)`; `value_next` is the
        head's at the point after the step, and 0 at data (`t + dt = 0`).
        """
        seq = batch.id("seq")
        rows = {name: u[seq] for name, u in batch.inputs.items()}
        x, x_next, t, dt, scale = (rows[k] for k in ("x", "x_next", "t", "dt", "scale"))
        out: dict[str, Tensor] = {}
        if needs & {"logp", "mean"}:
            out["mean"] = self._mean(x, t, dt, scale)
            std = sde.step_std(scale, dt).to(out["mean"])
            out["logp"] = sde.step_logp(x_next.to(out["mean"]), out["mean"], std, self.reduce)
        for name in sorted(needs & set(heads)):
            out[name] = heads[name](self._to(x), self._to(t))[:, 0]
        if "value_next" in needs:
            after = t + dt
            ahead = heads["value"](self._to(x_next), self._to(after))[:, 0]
            out["value_next"] = ahead.masked_fill((after <= 0).to(ahead.device), 0.0)
        return {name: self._to(u) for name, u in out.items() if name in needs}


@lru_cache(maxsize=8)
def _pretrained(
    task: DataTask, hidden: int, depth: int, seed: int, iterations: int, rows: int = 256
) -> dict[str, Tensor]:
    """Weights after `iterations` of flow matching: least squares of `v(x_t, t)` to `ε − x_0`."""
    stream = generator(seed, "pretrain")
    policy = FlowPolicy(task.dim, hidden=hidden, depth=depth, seed=seed)
    net = policy.module
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    for _ in range(iterations):
        x0 = task.sample(rows, stream)
        noise = torch.randn(x0.shape, generator=stream)
        t = torch.rand(rows, generator=stream)
        x = (1 - t[:, None]) * x0 + t[:, None] * noise
        loss = (net(x, t) - (noise - x0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
    return {name: p.clone() for name, p in net.state_dict().items()}
