"""Divergence of two distributions over a vocabulary, from what is known of single steps.

Both arguments are log-probabilities: `logp` of the policy that moves, `anchor` of the one that
stands still. Divergences are `D(anchor ‖ policy)`, per step, after tokens are thrown together:
never more than the full divergence.
Reference: DPPO, arXiv 2602.04879.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS, REST = 1e-8, 1e-12


def binary(logp: Tensor, anchor: Tensor, form: str) -> Tensor:
    """Of the events "the sampled token" and "another one"; shapes `[N]`.

    With `p = exp(logp)`, `q = exp(anchor)`: `tv = |p − q|`,
    `kl = q·log(q/p) + (1−q)·log((1−q+1e-8)/(1−p+1e-8))`.
    """
    p, q = logp.exp(), anchor.exp()
    if form == "tv":
        return (p - q).abs()
    if form == "kl":
        other = (1 - q) * (torch.log(1 - q + EPS) - torch.log(1 - p + EPS))
        return q * (anchor - logp) + other
    raise ValueError(f"unknown divergence {form!r}; known: tv, kl")


def top(logp: Tensor, anchor: Tensor, form: str) -> Tensor:
    """Of k tokens and one event for the rest; `[N, k]` each, result `[N]`.

    `kl = Σ q·log(q/p) + q_rest·log(q_rest/p_rest)`, `tv = ½ (Σ |p − q| + |p_rest − q_rest|)`; a
    rest is at least 1e-12. With k = 1 and the sampled token this is `binary`.
    """
    p, q = logp.exp(), anchor.exp()
    p_rest, q_rest = ((1 - x.sum(-1)).clamp(min=REST) for x in (p, q))
    if form == "tv":
        return 0.5 * ((p - q).abs().sum(-1) + (p_rest - q_rest).abs())
    if form == "kl":
        return (q * (anchor - logp)).sum(-1) + q_rest * (q_rest.log() - p_rest.log())
    raise ValueError(f"unknown divergence {form!r}; known: tv, kl")
