"""Rejection sampling, by enumeration: imitation of what the best of n answers is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import anypo
from anypo.core.neutral import Mean
from tests.oracle.expectation import Expectation
from tests.oracle.world import World, answers, arms, close, slope


def best_of(n: int, p: Tensor, rewards: Tensor) -> Tensor:
    """`P(best = y) = F(≤ R_y)^n − F(< R_y)^n` for unequal rewards."""
    below = torch.stack([p[rewards < r].sum() for r in rewards])
    return (below + p) ** n - below**n


def among_right(n: int, p: Tensor, rewards: Tensor) -> Tensor:
    """The mean answer among the right ones of n, where there is one: `π(y)/q · (1 − (1−q)^n)`."""
    right = (rewards >= 0.5).double()
    q = (p * right).sum()
    return p * right / q * (1 - (1 - q) ** n)


def imitated(
    world: World, table: Tensor, target: Callable[[Tensor, Tensor], Tensor], per_token: bool
) -> Tensor:
    """`−∇ Σ_x weight_x Σ_y target(y|x)·log π(y|x)`, of a token's mean where wanted."""

    def loss(leaf: Tensor) -> Tensor:
        total = torch.zeros(()).double()
        for x in world:
            wanted = target(world.probabilities(table, x), world.outcomes(x))
            logp = world.logp(leaf, x) / (world.lengths(x) if per_token else 1)
            total = total - world.weights[x] * (wanted * logp).sum()
        return total

    return slope(loss, table)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_raft_imitates_the_best_of_n(n):
    world = arms()
    table = world.table(1)
    found = Expectation(anypo.recipe("raft", group=n), world, table).gradient()
    close(found, imitated(world, table, lambda p, r: best_of(n, p, r), per_token=False))


def test_an_answer_of_several_tokens_counts_by_its_mean():
    """One prompt in a batch: the mean over its tokens is the answer's own."""
    world = answers()
    table = world.table(2)
    found = Expectation(anypo.recipe("raft", group=3), world, table).gradient()
    close(found, imitated(world, table, lambda p, r: best_of(3, p, r), per_token=True))


def test_keeping_all_right_answers_imitates_the_policy_given_that_it_is_right():
    """Each prompt with a right answer counts once, by the mean of its right ones."""
    world = arms()
    table = world.table(3)
    recipe = anypo.recipe("raft", group=3, keep=0, least=0.5)
    found = Expectation(recipe, world, table).gradient()
    close(found, imitated(world, table, lambda p, r: among_right(3, p, r), per_token=False))


def test_raft_at_a_deterministic_best_has_no_gradient():
    """A policy that only says the best answer is where imitation of it ends."""
    world = arms()
    table = torch.tensor([[40.0, 0, 0], [0, 40.0, 0]], dtype=torch.float64)
    found = Expectation(anypo.recipe("raft", group=2), world, table).gradient()
    assert found.abs().max() < 1e-12


def test_the_best_of_more_is_a_larger_step_towards_the_best():
    world = arms()
    table = torch.zeros(world.states, world.choices, dtype=torch.float64)
    pulls = [
        -Expectation(anypo.recipe("raft", group=n), world, table).gradient()[0, 0]
        for n in (2, 3, 4)
    ]
    expected = [world.weights[0] * (1 - (2 / 3) ** n - 1 / 3) for n in (2, 3, 4)]
    assert [float(x) for x in pulls] == pytest.approx(expected)


def test_the_likelihood_of_own_answers_has_no_gradient():
    """Without selection the expected score is 0: that is why such a run is refused."""
    world = arms()
    recipe = anypo.recipe("sft").but(aggregate=Mean("traj", "batch"))
    found = Expectation(recipe, world, world.table(4)).gradient()
    assert found.abs().max() < 1e-12


def test_of_equally_good_answers_each_is_kept_in_proportion_to_the_policy():
    """A lot decides between places, and an answer comes to either place as often."""
    world = arms(rewards=((1.0, 1.0, 0.0),), weights=(1.0,))
    table = world.table(5)
    p = world.probabilities(table, 0)
    q = p[:2].sum()
    target = torch.cat([p[:2] / q * (1 - (1 - q) ** 2), ((1 - q) ** 2)[None]])
    found = Expectation(anypo.recipe("raft", group=2), world, table).gradient()
    close(found, imitated(world, table, lambda *_: target, per_token=False))
