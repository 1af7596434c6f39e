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

from anypo.core.neutral import Return
from anypo.core.recipe import Recipe
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.surrogate.clip import Clip
from tests.oracle.expectation import Expectation
from tests.oracle.test_kl import divergence, opposite
from tests.oracle.test_optimum import policy, reaches, rewards, tilted
from tests.oracle.world import World, arms, close, gain, slope

WORLD = arms()
TABLE, OLD = WORLD.table(1), WORLD.table(2)
BETA = 0.4
UNBOUNDED = Recipe(ratio=Ratio("step"), surrogate=Clip(1.0, math.inf), advantage=Return())
FORMS = {
    "rkl": {"form": "k1", "weighted": True},
    "fkl": {"form": "k1", "reverse": True},
    "urkl": {"form": "k3", "weighted": True},
    "ufkl": {"form": "k3", "reverse": True},
}


def of(form: str, beta: float = BETA) -> Recipe:
    """The importance-weighted reward and one form of the divergence, from pieces."""
    return UNBOUNDED.but(regularize=(KL("old", beta, **FORMS[form]),))


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
    value = WORLD.mean(TABLE, WORLD.outcomes) - BETA * distance(form)(TABLE)
    close(found.loss().detach(), -value)


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
