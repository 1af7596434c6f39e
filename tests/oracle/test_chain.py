"""A chain of turns: rewards on the way, chance, critics; credit against the exact gradient.

Expectations run over all 18 trajectories of the chain (or all pairs of them).
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.core.neutral import Groups, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE
from anypo.pieces.regularizer.value import ValueLoss
from tests.oracle.expectation import Expectation
from tests.oracle.test_kl import divergence
from tests.oracle.world import chain, close, gain, slope

METHODS = discover.methods(anypo.recipes)
WORLD = chain()
TABLE, MU = WORLD.table(1), WORLD.table(2)
EXACT = gain(WORLD, TABLE)
TRUE = WORLD.values(TABLE)
WRONG = WORLD.table(5)[:, 0]


def expected(recipe: Recipe, value: Tensor | None = None, head: str = "") -> Tensor:
    """The expected gradient when the critic says `value` of each state."""
    heads = {} if value is None else {"value": value}
    return Expectation(recipe, WORLD, TABLE, heads=heads).gradient(head)


def test_the_chain_is_what_it_says():
    """Trajectories of two and three turns with two to four steps; probabilities sum to 1."""
    trajectories = WORLD.prompts[0]
    assert len(trajectories) == 18
    assert {len(t.tokens) for t in trajectories} == {2, 3, 4}
    assert {t.turns[-1] + 1 for t in trajectories} == {2, 3}
    assert {t.states for t in trajectories} != {trajectories[0].states}
    close(WORLD.probabilities(TABLE, 0).sum(), torch.tensor(1.0, dtype=torch.float64))
    first = WORLD.mean(TABLE, WORLD.outcomes)
    close(TRUE[0], first)


@pytest.mark.parametrize("lam", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("critic", ["true", "wrong"])
def test_gae(lam, critic):
    """λ = 1 is unbiased for any critic, the true critic for any λ; a wrong one, λ < 1, is not."""
    found = expected(Recipe(advantage=GAE(1.0, lam)), TRUE if critic == "true" else WRONG)
    if lam == 1.0 or critic == "true":
        close(found, -EXACT)
    else:
        assert (found + EXACT).abs().max() > 0.005


@pytest.mark.parametrize("lam", [1.0, 0.95])
def test_the_critic_rests_at_the_truth(lam):
    """The expected gradient of the critic is 0 at V^π for every λ, and not elsewhere."""
    recipe = Recipe(advantage=GAE(1.0, lam), regularize=(ValueLoss(0.5),))
    still = expected(recipe, TRUE, head="value")
    close(still, torch.zeros_like(still))
    moved = expected(recipe, WRONG, head="value")
    assert moved.abs().max() > 0.01
    assert (moved * (WRONG - TRUE)).sum() > 0, "a step against the gradient nears the truth"


def test_the_critic_with_its_own_lambda_aims_at_returns():
    """λ of the target 1: `½·coef·(V − R)²` has the gradient `coef·visits·(V − V^π)` for any V."""
    recipe = Recipe(advantage=GAE(1.0, 0.5, lam_value=1.0), regularize=(ValueLoss(0.5),))
    close(expected(recipe, WRONG, head="value"), 0.5 * visits() * (WRONG - TRUE))


def test_ppo_is_the_policy_gradient_before_it_moves():
    """PPO's surrogate with λ = 1, unwhitened, summed over answers: any critic will do."""
    recipe = METHODS["ppo"](lam=1.0).but(advantage=GAE(1.0, 1.0), aggregate=Recipe().aggregate)
    close(expected(recipe, WRONG), -EXACT)


def test_whitened_advantages_are_biased():
    """PPO divides by the deviation of what was drawn: not the gradient of E[R] to any scale."""
    plain = METHODS["ppo"]().but(aggregate=Recipe().aggregate, sampling=Groups(2))
    found = expected(plain, WRONG)
    cosine = (found * EXACT).sum() / (found.norm() * EXACT.norm())
    assert abs(cosine) < 0.995


def test_a2c():
    """λ = 1 and γ = 1, summed over answers: the policy gradient for any critic, which is taught.

    The critic's gradient is that of `c_v·(V − R)²`: `2·c_v·visits·(V − V^π)`.
    """
    recipe = METHODS["a2c"](gamma=1.0, value_coef=0.5).but(aggregate=Recipe().aggregate)
    close(expected(recipe, WRONG), -EXACT)
    close(expected(recipe, WRONG, head="value"), visits() * (WRONG - TRUE))


def test_vc_ppo_warms_up_its_critic_alone():
    """Before `warmup` the policy's expected gradient is 0, and the critic aims at returns."""
    first = METHODS["vc_ppo"](warmup=5).at(0).but(aggregate=Recipe().aggregate)
    still = expected(first, WRONG)
    close(still, torch.zeros_like(still))
    held = expected(first.but(surrogate=Recipe().surrogate), WRONG)  # the likelihood holds it too
    close(held, torch.zeros_like(held))
    close(expected(first, WRONG, head="value"), 0.5 * visits() * (WRONG - TRUE))


def test_vc_ppo_has_two_lambdas():
    """After it, λ = 1 for the actor is unbiased for any critic, unwhitened; else it is not."""
    after = METHODS["vc_ppo"](warmup=5, lam_critic=1.0).at(5).but(aggregate=Recipe().aggregate)
    plain = after.but(advantage=GAE(1.0, 1.0, lam_value=0.3))
    close(expected(plain, WRONG), -EXACT)
    close(expected(after, WRONG, head="value"), 0.5 * visits() * (WRONG - TRUE))
    assert (expected(after, WRONG) + EXACT).abs().max() > 0.005


def test_reinforce_pp_without_whitening():
    """Rewards to go, less the KL: `−∇(E[R] − β·KL(π ‖ ref))`; whitened, they turn away from it."""
    ref, beta = WORLD.table(3), 0.3
    recipe = METHODS["reinforce_pp"](beta=beta, group=2)
    sums = recipe.but(advantage=Return(), aggregate=Recipe().aggregate)
    found = Expectation(sums, WORLD, TABLE, ref=ref).gradient()
    exact = EXACT - beta * slope(divergence(WORLD, ref), TABLE)
    close(found, -exact)
    whitened = Expectation(recipe, WORLD, TABLE, ref=ref).gradient()
    cosine = (whitened * exact).sum() / (whitened.norm() * exact.norm())
    assert abs(cosine) < 0.999


def visits() -> Tensor:
    """How often a trajectory passes each state, `[states]`."""
    found = torch.zeros(WORLD.states, dtype=torch.float64)
    for t, p in zip(WORLD.prompts[0], WORLD.probabilities(TABLE, 0)):
        found[list(t.states)] += p
    return found


@pytest.mark.parametrize("gamma", [1.0, 0.8, 0.0])
def test_discounted_reward_to_go(gamma):
    """`Σ_n Σ_{k≥n} γ^{k−n} r_k ∇logp_n`: each step's own discounted future, with visits of now."""
    found = expected(Recipe(advantage=Return(gamma)))
    close(found, -credited(lambda t, n: sum(gamma ** (k - n) * t.rewards[k] for k in ahead(t, n))))
    if gamma == 1.0:
        close(found, -EXACT)
    else:
        assert (found + EXACT).abs().max() > 0.005


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_subset_of_future_rewards(steps):
    """Only the next rewards count: myopic, unless they reach to the end."""
    found = expected(METHODS["future_reward_subset"](plan="lookahead", k=steps))
    close(found, -credited(lambda t, n: sum(t.rewards[n : n + steps])))
    if steps == 4:
        close(found, -EXACT)
    else:
        assert (found + EXACT).abs().max() > 0.005


def test_full_and_greedy_plans():
    """All later rewards, or the step's own alone."""
    close(expected(METHODS["future_reward_subset"](plan="full")), -EXACT)
    greedy = expected(METHODS["future_reward_subset"](plan="greedy"))
    close(greedy, -credited(lambda t, n: t.rewards[n]))


@pytest.mark.parametrize("of", ["turn", "segment"])
def test_rewards_within_a_turn_are_myopic(of):
    """Credit that stops at the end of the turn, which is a segment here: greedy over turns."""
    recipe = Recipe(advantage=Return(within="turn"))
    found = expected(recipe if of == "turn" else METHODS["future_reward_subset"](plan="segment"))

    def own_turn(t, n):
        return sum(t.rewards[k] for k in ahead(t, n) if t.turns[k] == t.turns[n])

    close(found, -credited(own_turn))
    assert (found + EXACT).abs().max() > 0.005


@pytest.mark.parametrize("group", [1, 2])
def test_whole_outcomes_as_credit(group):
    """The whole outcome instead of the reward to go has the same expectation, for any baseline."""
    if group == 1:
        recipe = Recipe(advantage=Baseline("traj", "group", centre="off"))
    else:
        recipe = Recipe(sampling=Groups(2), advantage=Baseline("traj", "group", leave_one_out=True))
    close(expected(recipe), -EXACT)


def ahead(t, n: int) -> range:
    """The steps from n on."""
    return range(n, len(t.tokens))


def credited(credit) -> Tensor:
    """`Σ_τ P(τ) Σ_n credit(τ, n) ∇logp_n`, by hand."""
    now = WORLD.probabilities(TABLE, 0)

    def surrogate(table: Tensor) -> Tensor:
        rows = torch.log_softmax(table, -1)
        terms = [
            p * credit(t, n) * rows[t.states[n], t.tokens[n]]
            for t, p in zip(WORLD.prompts[0], now)
            for n in ahead(t, 0)
        ]
        return torch.stack(terms).sum()

    return slope(surrogate, TABLE)
