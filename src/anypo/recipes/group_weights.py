"""Group baselines times a factor: of the prompt, of its answers' spread, of a count."""

from __future__ import annotations

from typing import Literal

from anypo.core.method import bounded, method
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.curve import Blend, Clamp, Curve
from anypo.pieces.advantage.group import AnswerEntropy, BetaWeight, Compensate, Denoise, SolveRate
from anypo.pieces.advantage.softmax import Average, Softmax
from anypo.pieces.reward.confidence import Confidence
from anypo.pieces.reward.length import Brevity
from anypo.recipes.group_relative import dr_grpo, grpo


@method(paper="2508.08221", title="Lite PPO")
def lite_ppo(group: int = 8, clip: float = 0.2, eps: float = 1e-6) -> Recipe:
    """PPO without a critic: centred on the group, scaled by the batch, averaged over tokens.

    `A_i = (r_i − μ_g)/(σ_batch + eps)`, `L = −Σ_it min(ρ·A, clip(ρ, 1±ε)·A) / Σ_it 1`.

    Parameters: `group` (G, 8), `clip` (ε = 0.2, paper), `eps` (1e-6, ROLL).
    Deviations: none; σ is that of the raw rewards of the batch, divisor B − 1, as in ROLL's code.
    ROLL's page also clips advantages at 2 and adds a KL of 0.001; the paper does not.
    Reference: Tricks or Traps?, 2508.08221.
    """
    return grpo(group, clip, beta=0).but(
        advantage=Baseline("traj", "group", scale="batch", eps=eps),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2510.00977", title="2-GRPO")
def two_grpo(clip: float = 0.2, beta: float = 0.04, eps: float = 1e-6, ddof: int = 1) -> Recipe:
    """GRPO with pairs: one answer is the other's baseline, and more prompts fit into a batch.

    `A = ±(|d|/2)/(|d|/√2 + eps)`, d the difference of the two rewards: ±0.707 whatever its size.

    Parameters: `clip`, `beta`, `eps` (as in `grpo`), `ddof` (1 divides the variance by G − 1, 0 by
    G, which makes it ±1: √2 times the step). The batch holds 8 times the prompts of G = 16 at equal
    cost: `--prompts`. Deviations: none; the paper was read from its abstract.
    Reference: It Takes Two, 2510.00977.
    """
    return grpo(2, clip, beta).but(
        advantage=Baseline("traj", "group", scale="std", eps=eps, ddof=ddof)
    )


@method(paper="2506.02864", title="BNPO")
def bnpo(
    group: int = 8,
    clip: float = 0.2,
    reward_min: float = 0.0,
    reward_max: float = 1.0,
    weight_cap: float = 1e6,
) -> Recipe:
    """Beta normalisation: the deviation gives way to a Beta density fitted to the success rates.

    `A_i = (r_i − p_g) / f(p_g; α, β)`, rewards mapped to [0, 1], α and β from mean and variance of
    the p_g of the batch (see `BetaWeight`).

    Parameters: `group`, `clip`, `reward_min`, `reward_max` (0 and 1), `weight_cap` (1e6, the
    code's).
    Deviations: groups of equal means, where the code gives NaN, have weight 1. One reward; the
    paper averages the advantages of several. The surrogate is GRPO's without KL (unverified).
    Reference: 2506.02864.
    """
    weight = BetaWeight(reward_min, reward_max, weight_cap)
    span = bounded("reward_max", reward_max, low=reward_min) - reward_min
    return grpo(group, clip, beta=0).but(
        advantage=(1 / span) * (Baseline("traj", "group") * weight),
    )


@method(paper="2509.18849", title="MAPO")
def mapo(
    group: int = 12,
    clip: float = 0.2,
    beta: float = 0.04,
    eps: float = 1e-6,
    form: Literal["parabola", "tent"] = "parabola",
) -> Recipe:
    """Mixed advantage: the z-score where a prompt is uncertain, the relative gain where it is not.

    `A_i = w·(r_i − μ)/(σ + eps) + (1 − w)·(r_i − μ)/(μ + eps)`, `w = 4p(1 − p)`, p the share of
    rewards of 1.

    Parameters: `group` (12, the script), `clip`, `beta`, `eps` (1e-6), `form` (`parabola`; the
    ablation has `tent`, w = 2·min(p, 1 − p)).
    Deviations: none. Rewards of at most 0 in the mean make the relative gain blow up or change its
    sign, as published; the released code does not parse, and its script runs plain GRPO.
    Reference: 2509.18849.
    """
    return grpo(group, clip, beta).but(
        advantage=Blend(
            SolveRate() >> Curve(form),
            Baseline("traj", "group", scale="std", eps=eps),
            Baseline("traj", "group", scale="mean", eps=eps),
        )
    )


@method(paper="2508.05928", title="S-GRPO (stable)", aliases=("stable_grpo",))
def s_grpo_stable(
    group: int = 8, clip: float = 0.2, noise_p: float = 0.1, eps: float = 1e-8, length: int = 0
) -> Recipe:
    """GRPO whose groups count as much as they can be trusted when labels are sometimes flipped.

    `A_i = w(q) · (r_i − μ)/(σ + eps)`, q the share of positive rewards, w the least-squares weight
    under flips of probability p (see `Denoise`): groups with q ≤ p or q ≥ 1 − p are left out.

    Parameters: `group`, `clip`, `noise_p` (p, 0.1), `eps` (1e-8, the code's), `length` (L_max of
    the Dr. GRPO aggregate, 0 = the run's budget).
    Deviations: none; the code calls itself Dr. GRPO and divides by σ all the same.
    Reference: 2508.05928 (id from memory).
    """
    return dr_grpo(group, clip, length).but(
        advantage=Baseline("traj", "group", scale="std", eps=eps)
        * (SolveRate(least=0) >> Denoise(noise_p, eps))
    )


@method(paper="2505.12346", title="SEED-GRPO")
def seed_grpo(
    group: int = 8,
    clip: float = 0.2,
    alpha: float = 0.0417,
    form: Literal["linear", "exp"] = "linear",
    length: int = 0,
) -> Recipe:
    """Dr. GRPO whose groups count less the more their answers differ in meaning.

    `A_i = (r_i − μ) · f(α·SE/SE_max)`, `SE = −(1/K) Σ_c log p(c)`, `SE_max = log G`.

    Parameters: `group`, `clip`, `alpha` (0.0417, of a third party; the paper's is unverified),
    `form` (`linear` 1 − x, not below 0; or `exp`), `length` (L_max, 0 = the run's budget).
    Deviations: p(c) is the share of the answers in a class, which the reward reports as `cluster`;
    the paper also has probability mass. The paper's focal form is unknown.
    Reference: 2505.12346.
    """
    entropy = AnswerEntropy(each="class", relative=True)
    return dr_grpo(group, clip, length).but(
        advantage=Baseline("traj", "group") * (entropy >> Curve(form, alpha))
    )


@method(paper="2508.04138", title="COPO", kind="sketch")
def copo_consistency(
    group: int = 6, clip: float = 0.2, gamma: float = 1.0, rho: float = 1.0, eps: float = 1e-6
) -> Recipe:
    """Consistency-aware optimisation: what a group cannot tell apart is compared across prompts.

    `A_i = w·(r_i − μ_g)/(σ_g + eps) + (1 − w)·z(μ_g)`, `w = σ(γ·(H_g − ρ))`, H the entropy of the
    group's answers, z the z-score of the prompts' mean rewards within the batch.

    Sketch: the two losses and their sigmoid blend are the paper's; its global reward is not known,
    and the z-score of mean rewards is ours, as are `gamma` and `rho` (1 and 1 nat).
    Parameters: `group` (6), `clip` (0.2), `gamma`, `rho`, `eps` (1e-6). Needs the answer's class,
    which the reward reports as `cluster`.
    Deviations: advantages are blended where the paper blends losses (see `Blend`).
    Reference: 2508.04138.
    """
    gate = AnswerEntropy() >> Curve("logistic", gamma, rho, rising=True)
    local = Baseline("traj", "group", scale="std", eps=eps)
    across = Baseline("group", "batch", scale="std", eps=eps)
    return grpo(group, clip, beta=0).but(advantage=Blend(gate, local, across))


@method(paper="2504.09696", title="GRPO-LEAD")
def grpo_lead(
    group: int = 8,
    clip: float = 0.2,
    alpha: float = 0.05,
    gate: int = 0,
    bottom: float = 0.4,
    top: float = 1.5,
    middle: float = 0.75,
    steepness: float = 10.0,
    eps: float = 1e-6,
) -> Recipe:
    """GRPO that rewards brevity, punishes wrong answers, and dwells on difficult prompts.

    `r_i = exp(−α·z_i)` if right, −1 if wrong (z of lengths among right answers);
    `A_i = (r_i − μ)/(σ + eps) · (w(ρ) if A_i > 0 else w(1 − ρ))`, ρ the share of right answers,
    `w(x) = bottom + (top − bottom)/(1 + exp(steepness·(x − middle)))`.

    Parameters: `group`, `clip`, `alpha` 0.05, `gate` (0: length always counts; the code has 4000
    tokens, see `Brevity`), `bottom` 0.4, `top` 1.5, `middle` 0.75, `steepness` 10, `eps` 1e-6.
    Deviations: the code maps a malformed answer to 0, above a wrong one; here both are wrong.
    Reference: 2504.09696.
    """
    curve = Curve("logistic", steepness, middle, bottom, top)
    score = Baseline("traj", "group", scale="std", eps=eps)
    hard = (score >> Clamp(low=0.0)) * (SolveRate(0) >> curve)
    easy = (score >> Clamp(high=0.0)) * (SolveRate(0, kind="wrong") >> curve)
    return grpo(group, clip, beta=0).but(
        reward=(Brevity(alpha, gate=gate, eps=eps),), advantage=hard + easy
    )


@method(paper="2504.02546", title="GPG")
def gpg(
    group: int = 8,
    f_norm: float = 1.0,
    scale: Literal["off", "std"] = "off",
    count: Literal["groups", "rewards"] = "groups",
) -> Recipe:
    """Group policy gradient: no surrogate, and prompts without a signal do not shrink the step.

    `L = −α Σ_it A_i·logp_it / Σ_it 1`, `A_i = (r_i − μ)/F`, `α = #groups / #groups with σ > 0`.

    Parameters: `group`, `f_norm` (F, 1), `scale` (`std`: F = σ_g), `count` (`rewards`: verl's
    α = B / #rewards that are not 0, which depends on where the reward's zero is).
    Deviations: the published code asks for more prompts until half of the groups have a signal, and
    uses α only with a switch; here α is always on, as in the paper.
    Reference: 2504.02546.
    """
    return Recipe(
        sampling=Groups(group),
        advantage=Baseline("traj", "group", scale=scale) >> Compensate(count, f_norm),
        aggregate=Mean("step", "batch"),
    )


@method(paper="2510.08696", title="LENS")
def lens(group: int = 16, clip: float = 0.2, alpha: float = 0.25, eps: float = 1e-6) -> Recipe:
    """GRPO that learns from groups without a right answer: sure mistakes are the worst.

    `r̃ = r − (1 − r)·(1/G)·p/(D − p)` (see `Confidence`); z-score of r̃ in groups with a right
    answer, otherwise `alpha · (r̃ − μ)`.

    Parameters: `group` (16), `clip` (0.2), `alpha` (0.25, the paper's one hyper-parameter), `eps`
    (1e-6, ours).
    Deviations: `alpha` multiplies the advantage, which is the same as the loss. The divisor of σ
    (G − 1) and the mean probability in the paper's equation 14 are unverified. Reference:
    2510.08696.
    """
    return grpo(group, clip, beta=0).but(
        reward=(Confidence(),),
        advantage=Blend(
            SolveRate() >> Curve("step"),
            bounded("alpha", alpha) * Baseline("traj", "group"),
            Baseline("traj", "group", scale="std", eps=eps),
        ),
    )


@method(paper="2503.22456", title="EGSW", kind="sketch")
def egsw(
    group: int = 8,
    clip: float = 0.2,
    alpha: float = 0.1,
    tau: float = 1.0,
    eps: float = 1e-6,
    rescale: bool = False,
) -> Recipe:
    """Entropy-guided sequence weighting: answers that are good and uncertain count most.

    `w_i = softmax_g((A_i + α·H_i)/P)`, `A_i ← w_i·A_i`, A the z-score, H the answer's mean entropy.

    Sketch: the softmax over advantage plus entropy is the abstract's; where the weight is detached
    and the values of `alpha` and `tau` are not known, and those here are ours.
    Parameters: `group`, `clip`, `alpha` (0.1), `tau` (P, 1), `eps` (1e-6), `rescale`
    (weights of mean 1 instead of sum 1; default no: the step is G times smaller than GRPO's).
    Reference: 2503.22456.
    """
    score = Baseline("traj", "group", scale="std", eps=eps)
    sought = score + bounded("alpha", alpha) * Average("entropy_old")
    weight = sought >> Softmax(tau, rescale=rescale)
    return grpo(group, clip, beta=0).but(advantage=score * weight)
