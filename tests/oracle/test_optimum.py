"""Objectives with a known optimum reach it: the expected loss is minimised and compared.

The expected loss runs over every group (or pair, or label) that could be drawn, so its minimum is
exact. Where an objective is followed on policy instead, its expected gradient is 0 at the optimum.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.core.neutral import Groups
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.reward.kl import KLReward
from tests.oracle.expectation import Expectation
from tests.oracle.world import World, answers, arms, close

METHODS = discover.methods(anypo.recipes)
WORLDS = {"arms": arms(), "answers": answers()}


def tilted(world: World, base: Tensor, scores: list[Tensor]) -> list[Tensor]:
    """`π*(y|x) ∝ base(y|x) exp(score(x, y))` for each prompt."""
    return [torch.softmax(world.logp(base, x) + s, 0).detach() for x, s in enumerate(scores)]


def rewards(world: World, factor: float) -> list[Tensor]:
    """The outcomes of each prompt, times a factor."""
    return [factor * world.outcomes(x) for x in world]


def policy(world: World, table: Tensor) -> list[Tensor]:
    """What a table says of each prompt's trajectories."""
    return [world.probabilities(table, x).detach() for x in world]


def reaches(expectation: Expectation, best: list[Tensor]) -> None:
    """Minimising ends at the optimum, and began elsewhere."""
    world = expectation.world
    start = policy(world, expectation.parameter)
    assert max(float((s - b).abs().max()) for s, b in zip(start, best)) > 0.05
    found = policy(world, expectation.minimise())
    for f, b in zip(found, best):
        torch.testing.assert_close(f, b, rtol=0, atol=1e-6)


def still(expectation: Expectation) -> None:
    """The expected gradient is 0."""
    found = expectation.gradient()
    close(found, torch.zeros_like(found))


def as_table(world: World, best: list[Tensor]) -> Tensor:
    """The table of logits whose policy is `best`."""
    mass = torch.zeros(world.states, world.choices, dtype=torch.float64)
    for x, probabilities in zip(world, best):
        for t, p in zip(world.prompts[x], probabilities):
            for s, a in zip(t.states, t.tokens):
                mass[s, a] += p
    return mass.log()


# ── regression ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("group", [2, 3])
@pytest.mark.parametrize("beta", [0.4, 1.5])
def test_gvpo(where, group, beta):
    """`π* ∝ π_old exp(R/β)`, whatever policy samples."""
    world = WORLDS[where]
    table, old, mu = world.table(1), world.table(2), world.table(4)
    recipe = METHODS["gvpo"](group=group, beta=beta)
    best = tilted(world, old, rewards(world, 1 / beta))
    reaches(Expectation(recipe, world, table, mu=mu, old=old), best)


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("group", [2, 3])
@pytest.mark.parametrize("eta", [0.5, 2.0])
def test_rebel(where, group, eta):
    """`π* ∝ π_old exp(η R)`, whatever policy samples."""
    world = WORLDS[where]
    table, old, mu = world.table(1), world.table(2), world.table(4)
    recipe = METHODS["rebel"](eta=eta, group=group)
    reaches(
        Expectation(recipe, world, table, mu=mu, old=old),
        tilted(world, old, rewards(world, eta)),
    )


def test_dividing_by_the_deviation_moves_the_optimum_of_gvpo():
    """With rewards divided by their deviation the minimum is not `π_old exp(R/β)` any more."""
    world = WORLDS["arms"]
    recipe = METHODS["gvpo"](group=3, beta=0.4).but(
        advantage=Baseline("traj", "group", scale="std")
    )
    found = Expectation(recipe, world, world.table(1), mu=world.table(2))
    found.minimise()
    best = tilted(world, world.table(2), rewards(world, 1 / 0.4))
    now = policy(world, found.parameter)
    assert max(float((f - b).abs().max()) for f, b in zip(now, best)) > 0.02


# ── preferences ──────────────────────────────────────────────────────────────────────────────────


def preferred(world: World, x: int, first: int, second: int) -> float:
    """`P(first ≻ second) = σ(R_first − R_second)`: Bradley and Terry."""
    gap = world.outcomes(x)[first] - world.outcomes(x)[second]
    return float(torch.sigmoid(gap))


def judge(world: World) -> Any:
    """Both verdicts on a pair, with their probabilities."""

    def verdicts(x: int, pair: tuple[int, ...]) -> list[tuple[float, tuple[float, ...]]]:
        p = preferred(world, x, *pair)
        return [(p, (1.0, 0.0)), (1 - p, (0.0, 1.0))]

    return verdicts


def win_rates(world: World, against: Tensor) -> list[Tensor]:
    """`P(y ≻ π)` of each answer against a policy's."""
    found = []
    for x, other in enumerate(policy(world, against)):
        wins = [
            sum(float(p) * preferred(world, x, y, z) for z, p in enumerate(other))
            for y in range(len(other))
        ]
        found.append(torch.tensor(wins, dtype=torch.float64))
    return found


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_dpo(where, beta):
    """On Bradley–Terry verdicts `π* ∝ ref exp(R/β)`, whatever policy samples the pairs."""
    world = WORLDS[where]
    table, ref, mu = world.table(1), world.table(3), world.table(2)
    recipe = METHODS["dpo"](beta=beta)
    found = Expectation(recipe, world, table, mu=mu, ref=ref, labels=judge(world))
    reaches(found, tilted(world, ref, rewards(world, 1 / beta)))


def test_dpo_with_smoothing_stops_at_a_finite_margin():
    """Two answers, of which one always wins: `β·Δ = log((1−e)/e)`."""
    world = arms(rewards=((1.0, 0.0), (0.0, 1.0)))
    ref = world.table(3)
    best = tilted(world, ref, rewards(world, math.log(0.9 / 0.1) / 0.5))
    recipe = METHODS["dpo"](beta=0.5, smoothing=0.1)
    reaches(Expectation(recipe, world, world.table(1), ref=ref), best)


@pytest.mark.parametrize("where", WORLDS)
def test_ipo(where):
    """`π* ∝ ref exp(P(y ≻ μ)/β)` for the policy μ that samples, for any preference."""
    world = WORLDS[where]
    table, ref, mu, beta = world.table(1), world.table(3), world.table(2), 0.7
    recipe = METHODS["ipo"](beta=beta)
    found = Expectation(recipe, world, table, mu=mu, ref=ref, labels=judge(world))
    reaches(found, tilted(world, ref, [w / beta for w in win_rates(world, mu)]))


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("ratio", [0.0, 0.4, 1.0])
def test_inpo(where, ratio):
    """One round: `π* ∝ ref^ρ π_t^(1−ρ) exp(P(y ≻ μ)/η)`."""
    world = WORLDS[where]
    refs = {"base": world.table(3), "previous": world.table(6)}
    mu, eta = world.table(2), 0.7
    recipe = METHODS["inpo"](eta=eta, ratio=ratio)
    found = Expectation(recipe, world, world.table(1), mu=mu, ref=refs, labels=judge(world))
    wins = win_rates(world, mu)
    logs = [
        ratio * world.logp(refs["base"], x) + (1 - ratio) * world.logp(refs["previous"], x)
        for x in world
    ]
    reaches(found, [torch.softmax(h + w / eta, 0) for h, w in zip(logs, wins)])


def test_sppo_on_a_reward_that_is_the_chance_of_winning():
    """`log π/π_t = d = (P − ½)/β` where that is a policy: `π_t = σ(−d)`, `π* = σ(d)`."""
    world, beta = arms(rewards=((0.9, 0.1), (0.7, 0.3))), 0.5
    d = torch.tensor([[0.8], [0.4]], dtype=torch.float64)  # 2d is the gap of the log-odds
    before, after = torch.cat([-d, 0 * d], 1), torch.cat([d, 0 * d], 1)
    recipe = METHODS["sppo"](beta=beta, soft=True)
    reaches(
        Expectation(recipe, world, world.table(1), mu=world.table(2), ref=before),
        policy(world, after),
    )


@pytest.mark.parametrize("group", [2, 3])
def test_sppo_on_wins_expects_what_it_gets_on_their_probability(group):
    """The share of wins in a group has the mean `P(y ≻ π_t)`, so gradients agree in expectation."""
    world = WORLDS["arms"]
    table, mu, ref = world.table(1), world.table(2), world.table(3)
    hard = METHODS["sppo"](beta=0.3, group=group)
    chances = []
    for x, share in enumerate(policy(world, mu)):
        gap = world.outcomes(x)[:, None] - world.outcomes(x)[None]
        chances.append(tuple((((gap.sign() + 1) / 2) @ share).tolist()))
    known = arms(rewards=tuple(chances), weights=world.weights)
    soft = METHODS["sppo"](beta=0.3, group=group, soft=True).but(aggregate=hard.aggregate)
    found = Expectation(hard, world, table, mu=mu, ref=ref).gradient()
    assert found.abs().max() > 0.05
    close(found, Expectation(soft, known, table, mu=mu, ref=ref).gradient())


# ── on policy: the gradient is 0 at the optimum, and nowhere near it ──────────────────────────────


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize("name", ["reinforce", "rloo"])
def test_divergence_in_the_reward_rests_at_the_tilted_reference(where, name):
    """`E[R] − β·KL` is largest at `ref exp(R/β)`: there the expected gradient is 0."""
    world = WORLDS[where]
    ref, beta = world.table(3), 0.6
    options = {"beta": 0.0} if name == "rloo" else {}
    recipe = METHODS[name](group=2, **options).but(reward=(KLReward(beta),))
    best = as_table(world, tilted(world, ref, rewards(world, 1 / beta)))
    still(Expectation(recipe, world, best, ref=ref))
    assert Expectation(recipe, world, world.table(1), ref=ref).gradient().abs().max() > 0.01


@pytest.mark.parametrize("world", ["arms", "answers"])
def test_rloo_with_its_penalty_in_the_reward(world):
    """`π* ∝ ref·exp(R/β)`, whatever the length of an answer."""
    world, beta = WORLDS[world], 0.6
    ref = world.table(3)
    best = as_table(world, tilted(world, ref, rewards(world, 1 / beta)))
    still(Expectation(METHODS["rloo"](group=2, beta=beta), world, best, ref=ref))


@pytest.mark.parametrize("estimator", ["k2", "k1+", "k3+"])
def test_rloo_with_a_penalty_in_the_loss(estimator):
    """The same optimum for one-token answers, where k2 has the gradient of the whole KL."""
    world, beta = WORLDS["arms"], 0.6
    ref = world.table(3)
    best = as_table(world, tilted(world, ref, rewards(world, 1 / beta)))
    recipe = METHODS["kl_estimators"](estimator, "loss", group=2, beta=beta)
    still(Expectation(recipe, world, best, ref=ref))


def test_rloo_with_a_penalty_in_the_loss_on_longer_answers():
    """A penalty for each token does not see where the token leads: another optimum."""
    world, beta = WORLDS["answers"], 0.6
    ref = world.table(3)
    best = as_table(world, tilted(world, ref, rewards(world, 1 / beta)))
    recipe = METHODS["kl_estimators"]("k2", "loss", group=2, beta=beta)
    assert Expectation(recipe, world, best, ref=ref).gradient().abs().max() > 0.005


@pytest.mark.parametrize("group", [2, 3])
def test_grpo_without_deviation_rests_where_k3_does(group):
    """k3 in the loss: `π*(y) = ref(y) / (1 − c(R(y) − J)/β)`, with c = (G−1)/G and J = E_π*[R]."""
    world, beta, c = WORLDS["arms"], 0.5, (group - 1) / group
    ref = world.table(3)
    best = []
    for x in world:
        outcome, base = world.outcomes(x), world.probabilities(ref, x)
        low, high = float(outcome.max()) - beta / c + 1e-9, float(outcome.max())
        for _ in range(200):
            middle = (low + high) / 2
            mass = float((base / (1 - c * (outcome - middle) / beta)).sum())
            low, high = (middle, high) if mass > 1 else (low, middle)
        best.append(base / (1 - c * (outcome - low) / beta))
    recipe = METHODS["grpo"](group=group, beta=beta).but(advantage=Baseline("traj", "group"))
    still(Expectation(recipe, world, as_table(world, best), ref=ref))
    other = as_table(world, tilted(world, ref, rewards(world, c / beta)))
    moved = Expectation(recipe, world, other, ref=ref).gradient()
    assert moved.abs().max() > 0.01, "not the optimum of E[R] − β·KL(π ‖ ref)"


def test_penalty_towards_the_reference_alone():
    """Without reward, minimising k3 or k2 on samples of the reference returns to it."""
    world = arms(rewards=((0.0,) * 3, (0.0,) * 3))
    ref = world.table(3)
    for form, reverse in (("k1", True), ("k3", True), ("k2", False)):
        recipe = Recipe(
            sampling=Groups(1), ratio=Ratio("traj"), regularize=(KL("base", 1.0, form, reverse),)
        )
        reaches(Expectation(recipe, world, world.table(1), mu=ref, ref=ref), policy(world, ref))
