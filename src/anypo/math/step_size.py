"""How long a gradient step should be, given how well its gradient is known."""

from __future__ import annotations

import math


def signal_step(
    grad_norm_sq: float, noise_trace: float, n: int, smoothness: float
) -> dict[str, float]:
    """The step that maximises a lower bound on progress: `η = (1/L) · snr/(1 + snr)`.

    For an L-smooth objective and an unbiased gradient whose covariance has trace V/n, a step η
    gains at least `η|g|² − (L η²/2)(|g|² + V/n)`; `snr = |g|²/(V/n)`.

    Parameters: `grad_norm_sq` (|g|²), `noise_trace` (V of one sample), `n` (samples), `smoothness`
    (L). Returns `lr` and `snr`; without noise the snr is ∞ and the step 1/L, without signal both
    are 0.
    """
    noise = noise_trace / n
    snr = grad_norm_sq / noise if noise > 0 else (math.inf if grad_norm_sq > 0 else 0.0)
    share = grad_norm_sq / (grad_norm_sq + noise) if grad_norm_sq > 0 else 0.0
    return {"lr": share / smoothness, "snr": snr}
