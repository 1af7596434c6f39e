"""Divergences from a reference: estimators, their gradients, and where they are placed.

Values and gradients are expectations over every trajectory of the sampling policy; the divergences
that they are compared with are sums over the same list.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.core.neutral import Groups
from anypo.core.recipe import Recipe
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.entropy import Entropy
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.reward.kl import KLReward
from tests.oracle.expectation import Expectation
from tests.oracle.world import World, answers, arms, chain, close, gain, slope

METHODS = discover.methods(anypo.recipes)
SILENT = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
WORLDS = {"arms": arms(SILENT), "answers": answers(SILENT)}
LOUD = {"arms": arms(), "answers": answers(), "chain": chain()}
BETA = 0.3


def divergence(world: World, ref: Tensor) -> Callable[[Tensor], Tensor]:
    """`KL(π ‖ ref)` of whole trajectories, as a function of π's table."""
    return lambda table: world.mean(table, lambda x: world.logp(table, x) - world.logp(ref, x))


def opposite(world: World, ref: Tensor) -> Callable[[Tensor], Tensor]:
    """`KL(ref ‖ π)` of whole trajectories, as a function of π's table."""
    return lambda table: world.mean(ref, lambda x: world.logp(ref, x) - world.logp(table, x))


def held(world: World, now: Tensor, per_state: Callable[[Tensor], Tensor]) -> Tensor:
    """The gradient of a number per state, `[states]`, with states visited as `now` visits them."""
    visits = torch.zeros(world.states, dtype=torch.float64)
    for x in world:
        for t, p in zip(world.prompts[x], world.probabilities(now, x)):
            visits[list(t.states)] += world.weights[x] * p
    return slope(lambda table: (visits * per_state(table)).sum(), now)


def forward(ref: Tensor) -> Callable[[Tensor], Tensor]:
    """`KL(π(·|s) ‖ ref(·|s))` of each state."""
    logs = torch.log_softmax(ref, -1)
    return lambda t: (torch.softmax(t, -1) * (torch.log_softmax(t, -1) - logs)).sum(-1)


def backward(ref: Tensor) -> Callable[[Tensor], Tensor]:
    """`KL(ref(·|s) ‖ π(·|s))` of each state."""
    logs = torch.log_softmax(ref, -1)
    return lambda t: (logs.exp() * (logs - torch.log_softmax(t, -1))).sum(-1)


def penalty(world: World, mu: Tensor | None = None, **options) -> Expectation:
    """The expected penalty alone: every reward is 0."""
    table, ref = world.table(1), world.table(3)
    return Expectation(
        Recipe(regularize=(KL("base", 1.0, **options),)), world, table, mu=mu, ref=ref
    )


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("form", ["k1", "k3", "k1+", "k3+"])
def test_the_estimate_is_the_divergence_of_whole_answers(where, form):
    """`E[Σ_t k_t] = KL(π ‖ ref)`: the tokens' divergences add up to that of the answer."""
    world = WORLDS[where]
    exact = divergence(world, world.table(3))(world.table(1))
    assert exact > 0.05
    close(penalty(world, form=form).loss().detach(), exact)


@pytest.mark.parametrize("where", WORLDS)
def test_the_second_estimate_is_biased_but_near(where):
    """`E[Σ_t ½d²]` is not the divergence, and within a third of it here."""
    world = WORLDS[where]
    exact = divergence(world, world.table(3))(world.table(1))
    found = penalty(world, form="k2").loss().detach()
    assert 0.01 < abs(found / exact - 1) < 1 / 3


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("form", ["k2", "k1+", "k3+"])
def test_forms_with_the_right_gradient(where, form):
    """The gradient of `KL(π ‖ ref)` at every state, with the states as they are visited now."""
    world = WORLDS[where]
    exact = held(world, world.table(1), forward(world.table(3)))
    close(penalty(world, form=form).gradient(), exact)
    whole = slope(divergence(world, world.table(3)), world.table(1))
    if where == "arms":
        close(exact, whole)
    else:  # a penalty per token does not see that a token leads to other states
        assert (exact - whole).abs().max() > 0.01


@pytest.mark.parametrize("where", WORLDS)
def test_k3_has_the_gradient_of_the_opposite_divergence(where):
    """`E[∇k3] = ∇KL(ref ‖ π)` at every visited state."""
    world = WORLDS[where]
    exact = held(world, world.table(1), backward(world.table(3)))
    close(penalty(world, form="k3").gradient(), exact)
    right = held(world, world.table(1), forward(world.table(3)))
    assert (exact - right).abs().max() > 0.005
    if where == "arms":
        close(exact, slope(opposite(world, world.table(3)), world.table(1)))


@pytest.mark.parametrize("where", WORLDS)
def test_k1_in_the_loss_does_nothing(where):
    """`E[∇k1] = E[∇logp] = 0`."""
    found = penalty(WORLDS[where], form="k1").gradient()
    close(found, torch.zeros_like(found))


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("form", ["k1", "k3"])
def test_reverse_on_samples_of_the_reference(where, form):
    """Value and gradient of `KL(ref ‖ π)`, of whole answers, when the reference sampled."""
    world = WORLDS[where]
    ref = world.table(3)
    found = penalty(world, mu=ref, form=form, reverse=True)
    close(found.loss().detach(), opposite(world, ref)(world.table(1)))
    close(found.gradient(), slope(opposite(world, ref), world.table(1)))


@pytest.mark.parametrize("form", ["k1", "k3"])
def test_weighted_estimates_are_right_off_policy(form):
    """`E_μ[w·k]` has value and gradient of `KL(π ‖ ref)`; without w it has neither."""
    world = WORLDS["arms"]
    ref, mu = world.table(3), world.table(2)
    value = divergence(world, ref)(world.table(1))
    exact = slope(divergence(world, ref), world.table(1))
    found = penalty(world, mu=mu, form=form, weighted=True)
    close(found.loss().detach(), value)
    close(found.gradient(), exact)
    plain = penalty(world, mu=mu, form=form)
    assert abs(plain.loss().detach() / value - 1) > 0.05
    assert (plain.gradient() - exact).abs().max() > 0.05


@pytest.mark.parametrize("where", LOUD)
@pytest.mark.parametrize("name", ["reinforce", "rloo"])
def test_k1_in_the_reward_is_exact(where, name):
    """`E[∇loss] = −∇(E[R] − β·KL(π ‖ ref))` of whole trajectories, with rewards to go."""
    world = LOUD[where]
    table, ref = world.table(1), world.table(3)
    options = {"beta": 0.0} if name == "rloo" else {}
    recipe = METHODS[name](group=2, **options).but(reward=(KLReward(BETA),))
    found = Expectation(recipe, world, table, ref=ref).gradient()
    divergent = slope(divergence(world, ref), table)
    assert divergent.abs().max() > 0.05
    close(found, -(gain(world, table) - BETA * divergent))


@pytest.mark.parametrize("where", LOUD)
def test_k1_in_the_reward_is_exact_off_policy(where):
    """With whole answers' weights, too: the cost is that of the policy, not of the sampler."""
    world = LOUD[where]
    table, ref = world.table(1), world.table(3)
    recipe = Recipe(reward=(KLReward(BETA),), ratio=Ratio("traj", to="logp_mu"))
    found = Expectation(recipe, world, table, mu=world.table(2), old=table, ref=ref).gradient()
    close(found, -(gain(world, table) - BETA * slope(divergence(world, ref), table)))


@pytest.mark.parametrize("form", ["k2", "k3"])
def test_other_forms_in_the_reward_are_not(form):
    """As a cost, `k2` and `k3` have another gradient: that of `E[k]` with k held."""
    world = WORLDS["arms"]
    table, ref = world.table(1), world.table(3)
    found = Expectation(Recipe(reward=(KLReward(BETA, form),)), world, table, ref=ref).gradient()
    exact = BETA * slope(divergence(world, ref), table)
    assert (found - exact).abs().max() > 0.01


@pytest.mark.parametrize("where", ["arms", "answers", "chain"])
def test_entropy_bonus(where):
    """The gradient of every state's entropy, with the states as they are visited now."""
    world = {**WORLDS, "chain": chain()}[where]
    table = world.table(1)
    silent = Recipe(sampling=Groups(1), regularize=(Entropy(BETA),))
    found = Expectation(silent, world, table).gradient()

    def entropies(t: Tensor) -> Tensor:
        return -(torch.softmax(t, -1) * torch.log_softmax(t, -1)).sum(-1)

    reward = gain(world, table) if where == "chain" else torch.zeros_like(table)
    close(found, -reward - BETA * held(world, table, entropies))
