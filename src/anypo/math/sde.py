"""The stochastic denoising step of Flow-GRPO and its log-probability.

Time runs from `t = 1` (noise) to `t = 0` (data): `x_t = (1 − t)·x_0 + t·ε`, and the velocity model
is `v(x_t, t) ≈ ε − x_0`. Rows are denoising steps: `x`, `v`, `mean` have shape `[N, …]`, the
scalars of a step (`t`, `dt`, `scale`, `std`) have shape `[N]` or `[]`. The divergence of two steps
is `anypo.math.kl.gaussian` of their means.
Reference: Flow-GRPO, arXiv 2505.05470.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Reduce = Literal["mean", "sum"]
"""How the dimensions of a row become one number: the code's mean, or the exact density's sum."""

HALF_LOG_2PI = 0.9189385332046727


def schedule(steps: int, shift: float = 1.0) -> Tensor:
    """Times of a denoising path, `t_0 = 1 > … > t_steps = 0`, float64 `[steps + 1]`.

    `t = shift·u / (1 + (shift − 1)·u)` for evenly spaced `u`; `shift` 1 (default) is even
    spacing, Stable Diffusion 3 uses 3.
    """
    u = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    return shift * u / (1 + (shift - 1) * u)


def noise_scale(t: Tensor, first: Tensor | float, noise: float) -> Tensor:
    """Diffusion coefficient `s_t = a·sqrt(t / (1 − t))`, the shape of `t`.

    Parameters
    ----------
    t : time at which the step starts, in (0, 1].
    first : `t_1`, the second time of the schedule; it replaces `t` in the denominator at `t = 1`,
        where the coefficient would be infinite (as in the reference code; not in the paper).
    noise : a, dimensionless; the paper trains with 0.7, and 0 gives the deterministic flow.
    """
    first = torch.as_tensor(first, dtype=t.dtype, device=t.device)
    return noise * (t / (1 - torch.where(t == 1, first, t))).sqrt()


def step_mean(x: Tensor, v: Tensor, t: Tensor, dt: Tensor, scale: Tensor) -> Tensor:
    """Mean of the next point, `[N, …]`: `x + [v + s²/(2t)·(x + (1 − t)·v)]·dt`.

    `dt = t_next − t` is negative. With `scale` 0 it is the Euler step `x + v·dt` exactly.
    """
    t, dt, drift = (_rows(u, x) for u in (t, dt, scale * scale / (2 * t)))
    return x * (1 + drift * dt) + v * (1 + drift * (1 - t)) * dt


def step_std(scale: Tensor, dt: Tensor) -> Tensor:
    """Standard deviation of the next point in each dimension, `s_t·sqrt(−dt)`."""
    return scale * (-dt).sqrt()


def step_logp(x_next: Tensor, mean: Tensor, std: Tensor, reduce: Reduce = "mean") -> Tensor:
    """Log-density of `x_next` under `N(mean, std²·I)`, `[N]`.

    Each dimension gives `−(x_next − mean)²/(2·std²) − log std − ½·log 2π`. With `reduce="mean"`
    (default, the reference code) the dimensions are averaged, so that a ratio is the d-th root of
    the true one; `"sum"` is the density itself, as in the paper. `std` must be positive.
    """
    std = _rows(std, mean)
    z = (x_next - mean) / std
    return _collapse(-0.5 * z * z - std.log() - HALF_LOG_2PI, reduce)


def _rows(u: Tensor, like: Tensor) -> Tensor:
    """A number per row, shaped to multiply rows of `like`."""
    return u.reshape(*u.shape, *[1] * (like.dim() - u.dim())) if u.dim() else u


def _collapse(x: Tensor, reduce: Reduce) -> Tensor:
    flat = x.flatten(1)
    return flat.mean(1) if reduce == "mean" else flat.sum(1)
