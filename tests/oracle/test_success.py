"""What a group of right and wrong answers gives: the best of k, and rewards as labels.

Expectations run over all groups of answers to each prompt; p is the success rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

import anypo.recipes
from anypo.core import discover
from tests.oracle.expectation import Expectation
from tests.oracle.world import World, answers, arms, close, gain, slope

METHODS = discover.methods(anypo.recipes)
WORLDS = {"arms": arms(), "answers": answers()}


def best_of(world: World, k: int) -> Callable[[Tensor], Tensor]:
    """`E[max of k independent outcomes]`, as a function of the table."""

    def value(table: Tensor) -> Tensor:
        terms = []
        for x, weight in zip(world, world.weights):
            share, outcome = world.probabilities(table, x), world.outcomes(x)
            for picks in product(range(len(share)), repeat=k):
                chosen = list(picks)
                terms.append(weight * share[chosen].prod() * outcome[chosen].max())
        return torch.stack(terms).sum()

    return value


@pytest.mark.parametrize("where", WORLDS)
@pytest.mark.parametrize(("group", "k"), [(2, 1), (2, 2), (3, 2), (3, 3), (4, 2), (4, 3)])
def test_max_at_k(where, group, k):
    """`E[∇loss] = −∇E[max of k]`, from groups of n ≥ k answers."""
    world = WORLDS[where]
    exact = slope(best_of(world, k), world.table(1))
    recipe = METHODS["max_at_k"](group=group, k=k)
    close(Expectation(recipe, world, world.table(1)).gradient(), -exact)
    assert k == 1 or (exact - gain(world, world.table(1))).abs().max() > 0.01


@pytest.mark.parametrize("baseline", ["loo", "loo-1"])
@pytest.mark.parametrize(("group", "k"), [(3, 2), (4, 2), (4, 3)])
def test_baselines_of_max_at_k_change_no_mean(baseline, group, k):
    """What an answer cannot change is taken off: the same expectation, and less spread."""
    world = WORLDS["answers"]
    recipe = METHODS["max_at_k"](group=group, k=k, baseline=baseline)
    found = Expectation(recipe, world, world.table(1))
    close(found.gradient(), -slope(best_of(world, k), world.table(1)))
    plain = Expectation(METHODS["max_at_k"](group=group, k=k), world, world.table(1))
    assert spread(found) < spread(plain)


def spread(expectation: Expectation) -> float:
    """`E Σ A²` over all groups."""
    return sum(p * float((b["advantage"] ** 2).sum()) for p, b in expectation.drawn)


def binary() -> tuple[World, Tensor, list[float]]:
    """Two prompts with a right and a wrong answer each, a policy, and its success rates."""
    world = arms(rewards=((1.0, 0.0), (0.0, 1.0)), weights=(0.5, 0.5))
    table = torch.tensor([[-1.5, 0.0], [0.3, 0.0]], dtype=torch.float64)
    rates = [float(world.probabilities(table, x) @ world.outcomes(x)) for x in world]
    return world, table, rates


def over_groups(p: float, group: int, value: Callable[[int], float]) -> float:
    """`E_k value(k)` over groups with k right answers that have both kinds."""
    chances = {k: math.comb(group, k) * p**k * (1 - p) ** (group - k) for k in range(1, group)}
    return sum(chance * value(k) for k, chance in chances.items())


@pytest.mark.parametrize("group", [2, 3, 5])
@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_real_before_it_moves(group, tau):
    """`−∇p · E_k[(1/τ)(k/(1+k)/p + (G−k)/(1+G−k)/(1−p))]`: each kind shares its weight."""
    world, table, rates = binary()
    found = Expectation(METHODS["real"](group=group, tau=tau), world, table).gradient()
    factors = [
        over_groups(p, group, lambda k, p=p: k / (1 + k) / p + (n := group - k) / (1 + n) / (1 - p))
        for p in rates
    ]
    factors = torch.tensor(factors, dtype=torch.float64)[:, None] / tau
    close(found, -factors * gain(world, table))


@pytest.mark.parametrize("variant", ["basic", "dro"])
@pytest.mark.parametrize("group", [2, 4])
def test_disco_before_it_moves(variant, group):
    """`−∇p · P(both kinds)/(p(1−p))`: the mean of right scores less that of wrong ones."""
    world, table, rates = binary()
    recipe = METHODS["disco"](group=group, variant=variant)
    found = Expectation(recipe, world, table).gradient()
    factors = [over_groups(p, group, lambda k: 1.0) / (p * (1 - p)) for p in rates]
    factors = torch.tensor(factors, dtype=torch.float64)[:, None]
    close(found, -factors * gain(world, table))
