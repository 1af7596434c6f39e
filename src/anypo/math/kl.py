"""Per-sample estimators of KL(π ‖ ref) from log-probabilities under both."""

from __future__ import annotations

import torch
from torch import Tensor

FORMS = ("k1", "k2", "k3", "abs", "k1+", "k3+", "k1-")


def estimate(logp: Tensor, ref: Tensor, form: str) -> Tensor:
    """One estimate per sample, with `d = logp − ref`; shapes `[N]`.

    `k1 = d` (unbiased, signed; its pathwise gradient is 0 in expectation), `k2 = d²/2` (biased, the
    right gradient), `k3 = exp(−d) − 1 + d` (unbiased, ≥ 0; the gradient of the reverse order),
    `abs = |d|`. With `+` the value is the estimator's and the gradient that of k2, the right one.
    `k1- = d − 1`: times `w = π/ref` it is `w·log w − w`, the unnormalised divergence (k3 times w)
    without its constant 1.
    Value, placement and importance weight are three separate choices.
    Reference: Schulman, "Approximating KL divergence", 2020.
    """
    d = logp - ref
    if form == "k1":
        return d
    if form == "k2":
        return 0.5 * d**2
    if form == "k3":
        return torch.expm1(-d) + d
    if form == "abs":
        return d.abs()
    if form == "k1-":
        return d - 1
    if form in ("k1+", "k3+"):
        shadow = 0.5 * d**2
        return estimate(logp, ref, form[:-1]).detach() + shadow - shadow.detach()
    raise ValueError(f"unknown KL estimator {form!r}; known: {', '.join(FORMS)}")


def gaussian(mean: Tensor, ref_mean: Tensor, std: Tensor) -> Tensor:
    """`KL = ‖mean − ref_mean‖² / (2 std²)` of two Gaussians with one isotropic scale.

    Shapes: means `[N, d]`, `std` `[N]`, result `[N]`.
    """
    return ((mean - ref_mean) ** 2).flatten(1).sum(1) / (2 * std**2)
