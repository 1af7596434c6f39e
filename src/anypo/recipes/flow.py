"""Generators: the denoising transition is the step."""

from __future__ import annotations

from anypo.core.method import method
from anypo.core.neutral import Adam, Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.clip import Clip


@method(
    paper="2505.05470", title="Flow-GRPO (image)", domain="generator", aliases=("flow_grpo_image",)
)
def flow_grpo(
    group: int = 24,
    clip: float = 1e-4,
    beta: float = 0.04,
    limit: float = 5.0,
    minibatches: int = 2,
) -> Recipe:
    """GRPO over the denoising steps of a flow model whose ODE is sampled as an SDE.

    `A_i = (R_i − μ_g)/(σ_g + 1e-4)` clamped to ±limit, the same at every denoising step;
    `L = mean_steps max(−A·r, −A·clip(r, 1±ε)) + β·‖μ − μ_ref‖²/(2 std²)`.

    Parameters: `group` (24), `clip` (1e-4: the step's log-probability is a mean over dimensions),
    `beta` (0.04), `limit` (5), `minibatches` (2 optimizer steps per batch, the code's).
    Deviations: the KL is the paper's, with the true step variance; the code leaves |dt| out and
    averages over dimensions. σ is the population's. Reference: 2505.05470.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", scale="std", eps=1e-4, ddof=0, limit=limit),
        ratio=Ratio("step"),
        surrogate=Clip(clip, clip),
        regularize=(KL("base", beta, form="gaussian"),) if beta else (),
        aggregate=Mean("step", "batch"),
        update=Adam(minibatches_per_epoch=minibatches),
    )
