"""Steps in the metric of a Fisher matrix that is known only by its products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]
TINY = 1e-8
"""Added to what may be 0 in a divisor; spinningup's."""


def conjugate_gradient(product: Product, target: Tensor, iterations: int = 10) -> Tensor:
    """x with `A x ≈ target` for a symmetric positive definite A, from 0; shapes `[P]`.

    Exact up to rounding after P iterations. Stops by the count, or when the residual is 0.

    Parameters: `product` (v → A v), `target`, `iterations` (at most; default 10, TRPO's).
    Reference: Hestenes & Stiefel 1952; in TRPO, 1502.05477.
    """
    x, residual = torch.zeros_like(target), target
    direction, size = residual, residual @ residual
    for _ in range(iterations):
        if float(size) == 0:
            break
        image = product(direction)
        length = size / (direction @ image + TINY * size)
        x = x + length * direction
        residual = residual - length * image
        before, size = size, residual @ residual
        direction = residual + size / before * direction
    return x


class TrustStep(NamedTuple):
    """A natural step to the edge of a trust region.

    `direction` is x of `(F + damping·I) x = g`, `scale` its factor, `step = −scale·x`, and `kl` the
    quadratic model `½ sᵀ(F + damping·I)s` of the step's divergence.
    """

    direction: Tensor
    scale: Tensor
    step: Tensor
    kl: Tensor


def trust_region_step(
    product: Product,
    gradient: Tensor,
    radius: float = 0.01,
    damping: float = 0.1,
    iterations: int = 10,
) -> TrustStep:
    """The step that lowers a loss most within `½ sᵀ(F + damping·I)s ≤ radius`; shapes `[P]`.

    `scale = sqrt(2·radius / (xᵀ(F + damping·I)x + 1e-8))`.

    Parameters: `product` (v → F v, the Hessian of the mean KL at the old policy), `gradient` (of
    the loss), `radius` (δ = 0.01), `damping` (0.1), `iterations` (of conjugate gradients, 10): the
    defaults of spinningup. A gradient of 0 gives a step of 0. Reference: TRPO, 1502.05477.
    """

    def damped(v: Tensor) -> Tensor:
        return product(v) + damping * v

    x = conjugate_gradient(damped, gradient, iterations)
    scale = (2 * radius / (x @ damped(x) + TINY)).sqrt()
    step = -scale * x
    return TrustStep(x, scale, step, 0.5 * (step @ damped(step)))


def backtrack(
    accept: Callable[[Tensor], bool], step: Tensor, shrink: float = 0.8, tries: int = 10
) -> Tensor:
    """The first of `step · shrink^j`, j = 0 … tries−1, that is accepted; 0 when none is.

    TRPO accepts when the KL is within the radius and the loss has not grown. Shapes `[P]`.
    Reference: TRPO, 1502.05477; `shrink` 0.8 and 10 tries are spinningup's.
    """
    for j in range(tries):
        if accept(shrink**j * step):
            return shrink**j * step
    return torch.zeros_like(step)
