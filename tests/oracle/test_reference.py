"""Baselines measured beside the batch, and regressions of log-ratios on rewards.

Probe answers are listed too: the greedy one, or the reference's in exact proportion.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.core.neutral import Groups, Mean
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.surrogate.regression import Regression
from tests.oracle.expectation import Expectation
from tests.oracle.test_kl import divergence
from tests.oracle.test_optimum import as_table, policy, reaches, rewards, still, tilted
from tests.oracle.world import World, answers, arms, chain, close, gain, slope

METHODS = discover.methods(anypo.recipes)
WORLDS = {"arms": arms(), "answers": answers(), "chain": chain()}


@pytest.mark.parametrize("where", WORLDS)
def test_the_greedy_answer_is_an_unbiased_baseline(where):
    """ReMax: reward to go minus the greedy answer's outcome, with and without a KL."""
    world = WORLDS[where]
    recipe = METHODS["remax"](beta=0.0).but(aggregate=Mean("traj", "batch"))
    table = world.table(1)

    def greedy(request, x):
        assert request.temperature == 0
        return (world.greedy(table, x),)

    close(Expectation(recipe, world, table, probed=greedy).gradient(), -gain(world, table))
    ref, beta = world.table(3), 0.4
    charged = METHODS["remax"](beta=beta).but(aggregate=Mean("traj", "batch"))
    found = Expectation(charged, world, table, ref=ref, probed=greedy).gradient()
    close(found, -(gain(world, table) - beta * slope(divergence(world, ref), table)))
    clamped = METHODS["remax"](beta=0.0, limit=0.3)
    biased = Expectation(clamped, world, table, probed=greedy).gradient()
    assert (biased + gain(world, table)).abs().max() > 0.01


def quartered(world: World) -> Tensor:
    """A reference whose answers have the probabilities 1/4, 1/4 and 1/2."""
    share = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    return as_table(world, [share for _ in world])


def optimal_advantage(beta: float, soft: float) -> Recipe:
    """A*-PO: `(β·log π/ref + V* − R)²`, V* the soft mean of four answers of the reference."""
    return METHODS["a_star_po"](beta1=soft, beta2=beta, samples=4)


@pytest.mark.parametrize("where", ["arms", "answers"])
@pytest.mark.parametrize("beta", [0.4, 1.5])
def test_optimal_advantage_regression(where, beta):
    """With the exact V*, `π* ∝ ref exp(R/β)`, whatever policy samples the one answer."""
    world = WORLDS[where]
    ref = quartered(world)
    found = Expectation(
        optimal_advantage(beta, beta),
        world,
        world.table(1),
        mu=world.table(2),
        ref=ref,
        probed=lambda request, x: (0, 1, 2, 2),
    )
    reaches(found, tilted(world, ref, rewards(world, 1 / beta)))
    assert found.loss() < 1e-12, "the residual of every answer is 0"


def test_another_temperature_for_the_optimal_value_moves_the_optimum():
    """V* at a larger β than the regression's is too small: no policy fits every answer."""
    world = WORLDS["arms"]
    found = Expectation(
        optimal_advantage(0.4, 2.0),
        world,
        world.table(1),
        ref=quartered(world),
        probed=lambda request, x: (0, 1, 2, 2),
    )
    found.minimise()
    assert found.loss() > 1e-3


def soft_values(world: World, old: Tensor, lam: float) -> Tensor:
    """`V(s) = (1/λ) log Σ_a π_old(a|s) exp(λ(r + V(s')))` of the bandits, `[states]`."""
    logs = torch.log_softmax(old, -1)
    found = torch.zeros(world.states, dtype=torch.float64)
    for x in world:
        ahead: dict[tuple[int, int], float] = {}
        for t in sorted(world.prompts[x], key=lambda t: -len(t.tokens)):
            for s, a, r in list(zip(t.states, t.tokens, t.rewards))[::-1]:
                later = t.states[t.states.index(s) + 1 :]
                ahead[s, a] = r + (float(found[later[0]]) if later else 0.0)
                known = [lam * ahead[k] + logs[k] for k in ahead if k[0] == s]
                found[s] = torch.logsumexp(torch.stack(known), 0) / lam
    return found


@pytest.mark.parametrize("where", ["arms", "answers"])
@pytest.mark.parametrize("lam", [0.8, 2.0])
def test_token_regression_with_a_soft_critic(where, lam):
    """APA: `log π/π_old = λA` at every token; with soft values that is `π_old exp(λR)`."""
    world = WORLDS[where]
    old = world.table(2)
    recipe = METHODS["apa"](adv_coef=lam, kl_coef=0.0).but(advantage=GAE(1.0, 0.0))
    found = Expectation(
        recipe,
        world,
        world.table(1),
        mu=world.table(4),
        old=old,
        heads={"value": soft_values(world, old, lam)},
    )
    reaches(found, tilted(world, old, rewards(world, lam)))


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0])
def test_standardised_regression_fixes_the_order_and_not_the_step(scale):
    """Reg-GRPO: `π_old exp(c·R)` fits every group, for any c > 0; the opposite order does not."""
    world = WORLDS["arms"]
    old = world.table(2)
    recipe = METHODS["reg_grpo"](group=3, eps=1e-12)
    fitted = as_table(world, tilted(world, old, rewards(world, scale)))
    found = Expectation(recipe, world, fitted, mu=old)
    assert found.loss() < 1e-8
    assert found.gradient().abs().max() < 1e-8
    other = as_table(world, tilted(world, old, rewards(world, -scale)))
    assert Expectation(recipe, world, other, mu=old).loss() > 1.0


def test_the_soft_centre_is_the_value_of_the_tilted_policy():
    """`τ log mean exp(R/τ)` over a group in exact proportion is `τ log E exp(R/τ)`."""
    world = WORLDS["arms"]
    ref = quartered(world)
    tau = 0.7
    batch = world.batch([(0, (0, 1, 2, 2))])
    advantage = Baseline("traj", "group", centre="soft", tau=tau)(batch)
    outcome, share = world.outcomes(0), policy(world, ref)[0]
    value = tau * torch.log((share * (outcome / tau).exp()).sum())
    close(advantage, (outcome - value)[[0, 1, 2, 2]])


@pytest.mark.parametrize("weight", ["length", "score_norm"])
def test_a_weighted_mean_holds_its_own_answer(weight):
    """OPO's and OBLR-PO's baseline: biased by the answer's own share, for one-token answers too."""
    world = WORLDS["answers"]
    recipe = Recipe(sampling=Groups(2), advantage=Baseline("traj", "group", weight=weight))
    found = Expectation(recipe, world, world.table(1)).gradient()
    exact = gain(world, world.table(1))
    plain = Expectation(recipe.but(advantage=Baseline()), world, world.table(1)).gradient()
    close(plain, -0.5 * exact)
    assert (found + 0.5 * exact).abs().max() > 1e-3


@pytest.mark.parametrize("where", ["arms", "answers"])
def test_the_score_weighted_baseline_has_the_least_variance(where):
    """OBLR-PO: in a group in exact proportion, the b of `R − b` minimises `E‖(R − b)∇logp − g‖²`.

    The variance is a parabola in b, summed over all answers; its lowest point is compared.
    """
    world = WORLDS[where]
    table = quartered(world)
    recipe = METHODS["oblr_po"](group=4)
    listed = Expectation(recipe, world, table, group=2)
    for x in world:
        batch = listed.ready(world.batch([(x, (0, 1, 2, 2))]))
        b = batch.sum(batch["reward"], within="traj") - batch["advantage"]
        scores = [slope(lambda leaf, x=x, k=k: world.logp(leaf, x)[k], table) for k in range(3)]
        norms = torch.stack([s.square().sum() for s in scores])
        share, outcome = policy(world, table)[x], world.outcomes(x)
        close(b, ((share * norms * outcome).sum() / (share * norms).sum()).expand_as(b))


def test_all_is_still_where_rewards_are_equal():
    """No preference among answers: a regression on centred rewards rests at the old policy."""
    world = arms(rewards=((0.5,) * 3, (0.5,) * 3))
    recipe = Recipe(
        sampling=Groups(2), advantage=Baseline(), ratio=Ratio("traj"), surrogate=Regression()
    )
    still(Expectation(recipe, world, world.table(1)))
