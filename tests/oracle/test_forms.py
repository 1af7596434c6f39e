"""Regularised policy gradients off policy: four divergences from the policy that sampled.

`J(π) = E_π[R] − β·D` with D the forward or reverse divergence, normalised or not. Expectations run
over every answer that the old policy could give; both the gradient and the optimum are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from anypo.core.neutral import Groups, Return
from anypo.core.recipe import Recipe
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.clip import Clip
from tests.oracle.expectation import Expectation
from tests.oracle.test_kl import divergence, opposite
from tests.oracle.test_optimum import policy, reaches, rewards, tilted
from tests.oracle.world import World, answers, arms, close, gain, slope

WORLD = arms()
TABLE, OLD = WORLD.table(1), WORLD.table(2)
BETA = 0.4
UNBOUNDED = Recipe(ratio=Ratio("step"), surrogate=Clip(1.0, math.inf), advantage=Return())
METHODS = discover.methods(anypo.recipes)
FORMS = ("rkl", "fkl", "urkl", "ufkl")


def of(form: str, beta: float = BETA) -> Recipe:
    """RPG on one answer per prompt, with its reward itself for an advantage."""
    return METHODS["rpg"](form, beta).but(sampling=Groups(1), advantage=Return())


def distance(form: str) -> Callable[[Tensor], Tensor]:
    """The divergence of a form, as a function of the current table (all have full support)."""
    return (divergence if "rkl" in form else opposite)(WORLD, OLD)


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_every_form_off_policy(form):
    """`E_old[∇loss] = −∇(E_π[R] − β·D)`; where all answers are possible, mass is conserved."""
    found = Expectation(of(form), WORLD, TABLE, mu=OLD)
    regular = slope(distance(form), TABLE)
    assert regular.abs().max() > 0.05
    close(found.gradient(), -(gain(WORLD, TABLE) - BETA * regular))
    constant = BETA if form == "urkl" else 0.0  # the mass, which RPG leaves out
    value = WORLD.mean(TABLE, WORLD.outcomes) - BETA * distance(form)(TABLE)
    close(found.loss().detach(), -value - constant)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("group", [2, 3])
def test_as_published_with_the_mean_of_the_group(form, group):
    """The answer's own share in the mean costs the reward, and not the divergence, 1/G."""
    found = Expectation(METHODS["rpg"](form, BETA, group), WORLD, TABLE, mu=OLD).gradient()
    share = (group - 1) / group
    close(found, -(share * gain(WORLD, TABLE) - BETA * slope(distance(form), TABLE)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("where", ["arms", "answers"])
def test_reinforce_style_has_the_same_gradient(form, where):
    """The weights of RPG's gradient, detached, on log-likelihoods: equal on every batch."""
    world = {"arms": WORLD, "answers": answers()}[where]
    table, old = world.table(1), world.table(2)
    pair = [METHODS[name](form, BETA, group=2) for name in ("rpg", "rpg_reinforce")]
    first, second = (Expectation(r, world, table, mu=old).gradient() for r in pair)
    close(second, first)


@pytest.mark.parametrize("form", FORMS)
def test_reinforce_style_with_bounds_is_biased(form):
    """Weights clipped to [0.8, 1.28] throughout: another gradient off policy, the same on it."""
    plain, bounded = (
        METHODS["rpg_reinforce"](form, BETA, *bounds, group=2)
        for bounds in ((math.inf, math.inf), (0.2, 0.28))
    )
    far = [Expectation(r, WORLD, TABLE, mu=OLD).gradient() for r in (plain, bounded)]
    assert (far[0] - far[1]).abs().max() > 0.005
    near = [Expectation(r, WORLD, TABLE).gradient() for r in (plain, bounded)]
    close(near[1], near[0])


def forward_optimum(world: World, base: Tensor, beta: float) -> list[Tensor]:
    """`π(y) = β·base(y)/(λ − R(y))`, λ above the largest reward and found by bisection."""
    found = []
    for x in world:
        outcome, p = world.outcomes(x), world.probabilities(base, x).detach()
        low, high = float(outcome.max()), float(outcome.max()) + beta
        for _ in range(200):
            middle = (low + high) / 2
            mass = float((beta * p / (middle - outcome)).sum())
            low, high = (middle, high) if mass > 1 else (low, middle)
        found.append(beta * p / (high - outcome))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_optimum_of_every_form(form):
    """Reverse: `π_old exp(R/β)`, mirror descent's step; forward: `β·π_old/(λ − R)`."""
    best = tilted(WORLD, OLD, rewards(WORLD, 1 / BETA))
    if "rkl" not in form:
        best = forward_optimum(WORLD, OLD, BETA)
        assert (best[0] - tilted(WORLD, OLD, rewards(WORLD, 1 / BETA))[0]).abs().max() > 0.01
    reaches(Expectation(of(form), WORLD, TABLE, mu=OLD), best)


@pytest.mark.parametrize("lam", [0.8, 2.0])
def test_ratio_variance_as_a_brake(lam):
    """R²VPO: `π/π_old = 1 + Ā/(2λ)`, Ā the mean advantage that an answer gets in its groups."""
    recipe = METHODS["r2vpo"](group=2, lam=lam).but(advantage=Baseline())
    best = []
    for x in WORLD:
        base, outcome = policy(WORLD, OLD)[x], WORLD.outcomes(x)
        mean = (outcome - base @ outcome) / 2  # half of the group's mean is the answer's own
        best.append(base * (1 + mean / (2 * lam)))
    reaches(Expectation(recipe, WORLD, TABLE, mu=OLD), best)


def test_k3_without_its_weight_is_another_objective_off_policy():
    """GRPO's penalty on an old policy's samples: its optimum is not `π_old exp(R/β)`."""
    recipe = UNBOUNDED.but(regularize=(KL("old", BETA, form="k3"),))
    found = Expectation(recipe, WORLD, TABLE, mu=OLD)
    found.minimise()
    now = policy(WORLD, found.parameter)
    best = tilted(WORLD, OLD, rewards(WORLD, 1 / BETA))
    assert max(float((f - b).abs().max()) for f, b in zip(now, best)) > 0.02


@pytest.mark.parametrize("form", FORMS)
def test_without_a_coefficient_all_are_the_weighted_reward(form):
    """β = 0: the importance-weighted policy gradient."""
    found = Expectation(of(form, beta=0.0), WORLD, TABLE, mu=OLD).gradient()
    close(found, -gain(WORLD, TABLE))
    assert torch.isfinite(found).all()
