"""Methods whose credit comes from a value model: trained along, calibrated first, or frozen."""

from __future__ import annotations

from anypo.core.method import method
from anypo.core.neutral import Adam, Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.likelihood.heads_only import HeadsOnly
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.regularizer.value import ValueLoss
from anypo.pieces.reward.bound import Bound
from anypo.pieces.reward.implicit import Implicit
from anypo.pieces.reward.kl import KLReward
from anypo.recipes.policy_gradient import ppo
from anypo.recipes.preference import dpo


@method(paper="1602.01783", title="A2C", domain="any")
def a2c(
    gamma: float = 0.99,
    lam: float = 1.0,
    value_coef: float = 0.5,
    entropy_coef: float = 0.0,
    max_grad_norm: float = 0.5,
) -> Recipe:
    """Advantage actor-critic, synchronous: one plain policy-gradient step on n-step advantages.

    `L = mean_n [ −A_n·logp_n + c_v·(V_n − R_n)² − c_e·H_n ]`, `A = GAE(γ, λ)`; with λ = 1 that is
    the discounted reward of the rest of the fragment, plus the value at its end, minus V.

    Parameters: `gamma` (0.99), `lam` (1), `value_coef` (c_v = 0.5, of the square itself),
    `entropy_coef` (0), `max_grad_norm` (0.5): the defaults of SB3's A2C.
    Deviations: SB3, like the paper, takes steps of RMSprop; here they are AdamW's. The paper's
    agents are asynchronous; this is the synchronous form. Fragments are as long as the run's
    horizon (the paper 20 steps at most, SB3 5). Reference: 1602.01783.
    """
    critic = ValueLoss(2 * value_coef)
    return Recipe(
        advantage=GAE(gamma, lam),
        regularize=(critic, Entropy(entropy_coef)) if entropy_coef else (critic,),
        aggregate=Mean("step", "batch"),
        update=Adam(max_grad_norm=max_grad_norm),
    )


@method(paper="2503.01491", title="VC-PPO", aliases=("vc_ppo_decoupled_gae",))
def vc_ppo(
    lam_actor: float = 0.95,
    lam_critic: float = 1.0,
    gamma: float = 1.0,
    adapt: float = 0.0,
    warmup: int = 10,
    value_clip: float = float("inf"),
    epochs: int = 4,
    minibatches: int = 4,
) -> Recipe:
    """Value-calibrated PPO: the critic learns first, and from its own λ.

    For `warmup` iterations only the value head learns, on answers of the policy as it is; then
    PPO with `A = GAE(γ, λ_actor)` and the critic's target `GAE(γ, λ_critic) + V`. With λ < 1 a
    final reward reaches step t with the factor λ^{T−t}, which starves a critic of long answers.

    Parameters: `lam_actor` (0.95), `lam_critic` (1: the target is the reward itself), `gamma` (1),
    `adapt` (α of VAPO's length-adaptive `λ_actor = 1 − 1/(α·n)`, at least 0; default 0: off; VAPO
    0.05), `warmup` (iterations, 10: ours, the paper's length is not known), `value_clip` (∞: off,
    ours), `epochs`, `minibatches` (4 and 4, as in `ppo`).
    Deviations: the critic is a head on the policy, not a model of its own, so both share a learning
    rate (VAPO has 1e-6 and 2e-6). Reference: 2503.01491; adaptive λ: VAPO, 2504.05118.
    """
    after = ppo(value_clip=value_clip, epochs=epochs, minibatches=minibatches).but(
        advantage=GAE(gamma, lam_actor, lam_critic, adapt) >> Whiten()
    )
    first = after.but(likelihood=HeadsOnly(), surrogate=0.0 * after.surrogate)
    return first.then(at=warmup, **after.axes)


@method(paper="2502.16944", title="DVPO")
def dvpo(
    group: int = 1,
    beta: float = 0.2,
    gamma: float = 1.0,
    lam: float = 0.95,
    clip: float = 0.2,
    bootstrap: bool = False,
    warmup: int = 10,
    epochs: int = 4,
    minibatches: int = 4,
) -> Recipe:
    """Decoupled value policy optimisation: a value model learns once, then stands in for rewards.

    First `V ← argmin ½·mean (V − R)²` on scored answers of the policy as it is. Then
    `L = mean_n max(−A·r, −A·clip(r, 1±ε))`, A the whitened GAE of the frozen V under the reward
    `−β·(logp_old − ref)`: no answer is scored any more.

    Parameters: `group` (answers per prompt, 1), `beta` (0.2; the code adapts it towards a KL of 6),
    `gamma` (1), `lam` (0.95), `clip` (0.2), `bootstrap` (default no: V after the last step is 0, so
    the end of a good answer is pushed down, as in the code; with it the last step is worth V
    itself), `warmup` (iterations of the first stage, 10: ours), `epochs`, `minibatches` (4 and 4).
    Deviations: the value model is a head on the policy as it was at the start, not a network of its
    own. The code whitens its values over each mini-batch, padding included; here they are as they
    are. The code skips a batch whose mean ratio is above 10. Reference: 2502.16944.
    """
    value = ppo(clip, clip, value_coef=1.0, epochs=epochs, minibatches=minibatches)
    value = value.but(sampling=Groups(group))
    frozen = GAE(gamma, lam, critic="base", bootstrap=bootstrap) >> Whiten(under_root=True)
    policy = value.but(reward=(Bound(0.0), KLReward(beta)), advantage=frozen, regularize=())
    first = value.but(likelihood=HeadsOnly(), surrogate=0.0 * value.surrogate)
    return first.but(advantage=GAE(gamma, lam)).then(at=warmup, **policy.axes)


@method(paper="2404.18922", title="RTO (reinforced token optimisation)")
def rto(
    scale: float = 0.05,
    clip: float = 0.05,
    beta: float = 0.01,
    dpo_beta: float = 0.1,
    warmup: int = 10,
    epochs: int = 4,
    minibatches: int = 4,
) -> Recipe:
    """Reinforced token optimisation: DPO first, then PPO on the token rewards that it implies.

    `r_n = clip(b1·(logp_dpo − ref)_n, ±c) − b2·(logp_old − ref)_n + [n last]·clip(R, ±10)`, then
    PPO with a critic on r.

    Parameters: `scale` (b1 = 0.05), `clip` (c = 0.05; 0 = off), `beta` (b2 = 0.01; the code's
    value is that of OpenRLHF's PPO, unverified), `dpo_beta` (0.1, of the first phase), `warmup`
    (iterations of DPO, 10: ours), `epochs`, `minibatches` (4 and 4).
    Deviations: the DPO policy is made in the run, on pairs that the task's reward orders, and PPO
    goes on from it, where the paper trains it before on a data set and starts PPO from the
    fine-tuned model. The weight b3 of the sentence reward is 1. Reference: 2404.18922.
    """
    limit = clip or float("inf")
    shaping = (Bound(10.0), Implicit(scale=scale, limit=limit), KLReward(beta))
    after = ppo(epochs=epochs, minibatches=minibatches).but(reward=shaping)
    return dpo(dpo_beta).then(at=warmup, refresh="dpo", **after.axes)
