"""What may stand in place of PPO's clip: leaks, drops, trust regions, gates, smoothing, targets."""

from __future__ import annotations

import math
from typing import Literal

from anypo.core.method import method
from anypo.core.neutral import Mean, Reinforce, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.beside import Beside, Fallback
from anypo.pieces.advantage.gae import Whiten
from anypo.pieces.advantage.gauge import Gauge
from anypo.pieces.aggregate.gate import Gate
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.ratio.transform import LogClip, Pool, Smooth
from anypo.pieces.regularizer.covariance import TopCovariance
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.clip import Clip
from anypo.pieces.surrogate.covariance import CovarianceClip
from anypo.pieces.surrogate.target import Attract
from anypo.pieces.surrogate.trust import Trust
from anypo.pieces.surrogate.window import EntropyClip, LeakyClip, MixedClip
from anypo.recipes.group_relative import dapo, grpo

UNCLIPPED = Clip(1.0, math.inf)
"""The plain surrogate `r·A`."""


@method(paper="2509.20712", title="CE-GPPO")
def ce_gppo(
    group: int = 8,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    beta1: float = 0.5,
    beta2: float = 1.0,
    dual_clip: float = 3.0,
) -> Recipe:
    """Gradient-preserving clipping: a clipped token keeps a bounded gradient.

    `L = −Σ_it J_it / Σ_it 1` with `J = b1·(1−ε_l)·u·A` where r < 1−ε_l and A < 0,
    `J = b2·(1+ε_h)·u·A` where r > 1+ε_h and A > 0, else `J = r·A`, and at least c·A for A < 0;
    u has the value 1 and the gradient of logp.

    Parameters: `group` (8), `clip_low` 0.2, `clip_high` 0.28 (scripts), `beta1` (b1, 0.5: the
    authors' for 1.5B; 0.75 for 7B), `beta2` (b2, 1.0), `dual_clip` (c, 3; scripts also have 10;
    ∞ = off).
    Deviations: none from the code's general form; that file's simpler one cannot run.
    Reference: 2509.20712.
    """
    return grpo(group, beta=0).but(
        surrogate=LeakyClip(clip_low, clip_high, beta1, beta2, dual_clip),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2505.22617", title="Clip-Cov")
def clip_cov(
    group: int = 8,
    clip_low: float = 1.0,
    clip_high: float = 1.0,
    cov_ratio: float = 2e-4,
    cov_lb: float = 1.0,
    cov_ub: float = 5.0,
) -> Recipe:
    """Clip-Cov: a few random tokens of high covariance lose their gradient, to save entropy.

    `cov_n = (A_n − mean A)(logp_n − mean logp)`; of the tokens with `cov_lb < cov < cov_ub` that
    PPO does not clip, `max(1, ⌊ρN⌋)` at random are left out of PPO's loss, which is still divided
    by all N tokens.

    Parameters: `group` (8), `clip_low`, `clip_high` (1.0: ordinary clipping nearly off),
    `cov_ratio` (ρ, 2e-4), `cov_lb` 1.0, `cov_ub` 5.0: the defaults of the authors' code and verl.
    Deviations: means and quota are those of the update batch; both codes take them per micro-batch,
    so that their result depends on its size. Reference: 2505.22617.
    """
    return grpo(group, beta=0).but(
        surrogate=CovarianceClip(clip_low, clip_high, cov_ratio, cov_lb, cov_ub),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2505.22617", title="KL-Cov")
def kl_cov(group: int = 8, cov_ratio: float = 0.002, kl_coef: float = 1.0) -> Recipe:
    """KL-Cov: the tokens of highest covariance are held near the old policy; nothing is clipped.

    `L = (1/N) Σ_n [ −r_n·A_n + k·1[n ∈ S]·|logp_n − logp_old_n| ]` with S the `max(1, ⌊ρN⌋)` tokens
    of the largest `(A_n − mean A)(logp_n − mean logp)`.

    Parameters: `group` (8), `cov_ratio` (ρ, 0.002: the authors' for 7B; 0.0002 for 32B, and in
    verl), `kl_coef` (k, 1.0).
    Deviations: none from the code; the paper speaks of a KL where the code has |log r|. Its slope
    at r = 1 is 0, so the first update of a batch has no penalty: take more than one, for example
    `--recipe.update.epochs 2`. Statistics as in `clip_cov`. Reference: 2505.22617.
    """
    return grpo(group, beta=0).but(
        surrogate=UNCLIPPED,
        regularize=(KL("old", kl_coef, form="abs") * TopCovariance(cov_ratio),),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2602.04879", title="DPPO (divergence)", aliases=("dppo_binary",))
def dppo_divergence(
    group: int = 8,
    divergence: Literal["binary_tv", "binary_kl"] = "binary_tv",
    low: float = 0.1,
    high: float = 0.1,
    ratio_cap: float = 10.0,
    trust: Literal["logp_mu", "logp_old"] = "logp_mu",
) -> Recipe:
    """Divergence PPO: a token is dropped when it moved too far in divergence, not in ratio.

    `L = −Σ_it A·sg(min(p/q, C))·M·logp / Σ_it 1`, p and q the token's probability under the policy
    and the sampler; M = 0 where A > 0, p > q, D(q‖p) > high and where A ≤ 0, p < q, D > low.

    Parameters: `group` (8), `divergence` (D of the events "this token" and "another one":
    `binary_tv` |p − q|, or `binary_kl`), `low`, `high` (0.1; the paper's values per run are
    unverified, about 0.1 to 0.2 for TV and 0.05 for KL), `ratio_cap` (C, 10), `trust` (whose
    neighbourhood is trusted: the sampler's, as in the paper, or `logp_old`: the code's recompute
    variants).
    Deviations: the divergences over the k likeliest tokens are functions of `anypo.math.coarse`
    alone: no policy records the sampler's k likeliest tokens yet. Reference: 2602.04879.
    """
    return grpo(group, beta=0).but(
        ratio=Ratio("step", to="logp_mu"),
        surrogate=Reinforce(math.inf, ratio_cap - 1) * Trust(divergence, low, high, trust),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2507.20673", title="GMPO", aliases=("geo_mean",))
def gmpo(group: int = 8, log_clip_low: float = 0.4, log_clip_high: float = 0.4) -> Recipe:
    """Geometric-mean policy optimisation: one ratio per answer out of token ratios clipped in log.

    `R_i = exp((1/n_i) Σ_t d*_it)`, `d* = min(d, ε_h)` for A > 0 and `max(d, −ε_l)` for A < 0,
    `d = logp − logp_old`; `L = −(1/B) Σ_i R_i·A_i`.

    Parameters: `group` (8), `log_clip_low`, `log_clip_high` (ε in log space, 0.4: ratios of 0.67
    to 1.49; one ε in the paper and the authors' code, two in verl).
    Deviations: verl adds 1e-8 to n_i. |d| is capped at 20 first. Reference: 2507.20673.
    """
    clip = LogClip(log_clip_low, log_clip_high, one_sided=True)
    return grpo(group, beta=0).but(
        ratio=Ratio("step") >> clip >> Pool("traj"),
        surrogate=UNCLIPPED,
    )


@method(paper="2603.08239", title="FiberPO")
def fiberpo(group: int = 8, delta: float = 0.2, epsilon: float = 0.2) -> Recipe:
    """Fibration policy optimisation: an answer's mean log-ratio and its tokens' rests have budgets.

    `c_i = clip(mean_t d_it, −δ, δ)`, `g_it = clip(d_it, c_i − ε, c_i + ε)`, `d = logp − logp_old`;
    `L = −(1/B) Σ_i (1/n_i) Σ_t exp(g_it)·A_i`, without a minimum.

    Parameters: `group` (8), `delta` (δ, of the answer), `epsilon` (ε, of the token): 0.2 in a
    public reproduction; the paper's values are unverified.
    Deviations: gate and defaults are those of that reproduction, not checked against the paper;
    its levels above the answer (prompt, domain) are left out, since there each coarser level
    replaces the finer one, which may not be what the paper means. Reference: 2603.08239.
    """
    return grpo(group, beta=0).but(
        ratio=Ratio("step") >> LogClip(epsilon, epsilon, delta),
        surrogate=UNCLIPPED,
    )


@method(paper="2509.21282", title="PSPO")
def pspo(group: int = 8, alpha: float = 0.1) -> Recipe:
    """Probability smoothing: the policy is mixed with the old one before the ratio is taken.

    `r_s = (1−a)·r + a`, `L = −Σ_it r_s·A / Σ_it 1`; no clip.

    Parameters: `group` (8), `alpha` (a, 0.1, the authors' example).
    Deviations: none known; the authors' loss code was not read. As the loss is linear in the ratio,
    smoothing scales its gradient by 1−a and bounds nothing. Reference: 2509.21282.
    """
    return grpo(group, beta=0).but(
        ratio=Ratio("step") >> Smooth(alpha),
        surrogate=UNCLIPPED,
        aggregate=Mean("step", "batch"),
    )


@method(paper="2509.16591", title="HAPO")
def hapo(
    group: int = 16,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    clip_alpha: float = 1.0,
    adv_beta: float = 1.0,
    pivot: float = 0.8,
    mode: Literal["corrected", "as-published"] = "corrected",
    dual_clip: float = 3.0,
) -> Recipe:
    """Heterogeneous adaptive policy optimisation: entropy sets a token's clip range and advantage.

    `h` in [−1, 1] is the token's log-entropy against a quantile of the batch. The clip range is
    wider below for h < 0, `ε_l(1 − a·h)`, and above for h > 0, `ε_h(1 + a·h)`; the advantage is
    `A(1 + b·h)` for h > 0 outside of the inner half of the range, and for h ≤ 0 inside of it. A is
    standardised over all tokens of a group (population deviation), or GRPO's where some |A| ≥ 5.

    Parameters: `group` (16), `clip_low` 0.2, `clip_high` 0.28, `clip_alpha` (a), `adv_beta` (b)
    (1.0), `pivot` (the quantile, 0.8), `mode` (`corrected`, or `as-published`: the code's sign
    error makes h ≥ 0 everywhere, so that the branches for h < 0 never run), `dual_clip` (3).
    Deviations: entropies are those before the update, compared over the collected batch; the code
    has the current ones of a micro-batch. The entropy-adaptive sampling temperature is left out: no
    formula of it is known here. Dynamic sampling as in `dapo`; no length penalty.
    Reference: 2509.16591.
    """
    tokens = Return() >> Whiten("group", eps=1e-6, ddof=0)
    advantage = Fallback(tokens, Baseline("traj", "group", scale="std"))
    return dapo(group, overlong=0).but(
        advantage=Beside(advantage, "gauge", Gauge(pivot, mode)),
        surrogate=EntropyClip(clip_low, clip_high, clip_alpha, adv_beta, dual_clip),
    )


@method(paper="2601.05607", title="DHPO", kind="sketch")
def dhpo(
    group: int = 8,
    mix: float = 0.5,
    clip: float = 0.2,
    seq_low: float = 3e-4,
    seq_high: float = 4e-4,
) -> Recipe:
    """Dynamic hybrid policy optimisation: token and sequence ratios, each clipped, are mixed.

    `ρ = a·r_it + (1−a)·s_it`, ρ̄ the same of the clipped ratios,
    `L = −(1/B) Σ_i (1/n_i) Σ_t min(ρ·A, ρ̄·A)`, s the geometric mean of an answer's ratios with the
    gradient of each token.

    Parameters: `group` (8), `mix` (a, 1/2: the averaged form), `clip` (of r; 0.2, by analogy),
    `seq_low`, `seq_high` (of s; 3e-4 and 4e-4, GSPO's).
    Sketch: known are two ratios, a clip of each before they are mixed, one surrogate, and an
    averaged and an entropy-guided weight. Where the minimum stands, the clip ranges and the
    aggregation are ours; the entropy-guided weight is left out, since its map is not known.
    Reference: 2601.05607, abstract only; no code.
    """
    return grpo(group, beta=0).but(surrogate=MixedClip(mix, clip, seq_low, seq_high))


@method(paper="2602.03309", title="EGSPO", kind="sketch", aliases=("eg_spo",))
def egspo(
    group: int = 8, clip: float = 0.2, quantile: float = 0.8, attenuation: float = 0.1
) -> Recipe:
    """Entropy-gated selective policy optimisation: certain tokens get a weaker PPO update.

    `L = −Σ_it g_it·min(r·A, clip(r, 1±ε)·A) / Σ_it 1`, `g = 1` where the token's entropy reaches a
    threshold, else `g = φ`.

    Parameters: `group` (8), `clip` (ε, 0.2), `quantile` (of the batch's entropies, 0.8: our
    threshold), `attenuation` (φ, a constant: ours, 0.1).
    Sketch: known is that tokens of high entropy get the whole update and others an attenuated one
    with the same sign. The threshold, φ, and the entropy that counts (here that before the update)
    are ours. The supervised warm-up and whether its loss goes on are left out; the advantage is the
    group's, so that the gate touches no critic. Reference: 2602.03309, abstract and introduction.
    """
    return grpo(group, clip, beta=0).but(
        aggregate=Mean("step", "batch") * Gate(quantile, attenuation)
    )


@method(paper="2604.18578", title="GBPO", aliases=("bounded_ratio_grpo",))
def gbpo(group: int = 8, clip_low: float = 0.2, clip_high: float = 0.2, tau: float = 1.0) -> Recipe:
    """Group bounded-ratio policy optimisation: the ratio is regressed onto a bounded target.

    `t = 1 − ε_l + (ε_l + ε_h)·σ(u)`, `u = (R_i − median_g)/(σ_g·tau)`,
    `L = Σ_it |(r − t)·A_i| / Σ_it 1`, `A_i = (R_i − μ_g)/σ_g`: the gradient turns round at r = t.

    Parameters: `group` (8), `clip_low`, `clip_high` (ε, 0.2), `tau` (1.0; → 0 is a hard
    step to one of the bounds): the authors' code.
    Deviations: none; with unequal bounds the target for u = 0 is not 1, as in the code.
    Reference: Bounded Ratio Reinforcement Learning, 2604.18578.
    """
    main = Baseline("traj", "group", scale="std")
    signal = Baseline("traj", "group", scale="std", centre="median")
    return grpo(group, beta=0).but(
        advantage=Beside(main, "target", signal),
        surrogate=Attract(clip_low, clip_high, tau),
        aggregate=Mean("step", "batch"),
    )
