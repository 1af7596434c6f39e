"""f-divergences of a policy from a target, by the slope that a policy gradient follows."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "kl": lambda x: -(-x).exp(),
    "reverse_kl": lambda x: x + 1,
    "js": lambda x: math.log(2) - functional.softplus(-x),
    "tv": lambda x: torch.sign(x) / 2,
    "chi_square": lambda x: 1 - (-2 * x).exp(),
    "reverse_chi_square": lambda x: 2 * (x.exp() - 1),
}
"""`f'(t)` as a function of `log t`, where `t = π/p` and `D_f = E_p[f(t)]`.

`kl` is KL(p ‖ π), f = −log t; `reverse_kl` is KL(π ‖ p), f = t·log t; `js` is twice
Jensen-Shannon, `tv` total variation, f = |t − 1|/2; `chi_square` is that of p from π,
`reverse_chi_square` of π from p.
Reference: 2302.08215.
"""


def slope(log_t: Tensor, f: str) -> Tensor:
    """`f'(exp(log_t))`; shapes `[N]`. The gradient of `D_f` is `E_π[f'(π/p) ∇log π]`."""
    return SLOPES[f](log_t)
