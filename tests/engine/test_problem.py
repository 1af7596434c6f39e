"""One pass or two, and what is not computed at all."""

from __future__ import annotations

import pytest
import torch

from anypo.core.batch import Batch
from anypo.engine.columns import cuts
from anypo.engine.problem import Problem, alive
from tests.properties.test_invariance import Alone, prepared, recipe_of
from tests.toys import ToyPolicy, toy_batch, toy_state


class Counting(ToyPolicy):
    """Counts the steps that it computes with a gradient, and without one."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: list[tuple[bool, int]] = []

    def columns(self, batch, needs, heads):
        """As the toy, counted."""
        self.passes.append((torch.is_grad_enabled(), len(batch)))
        return super().columns(batch, needs, heads)


def run(name: str, batch: Batch, budget: int):
    recipe = recipe_of(name)
    policy = Counting()
    state = toy_state(recipe, policy, budget)
    ready = prepared(recipe, batch, state)
    policy.passes.clear()
    facts = Problem(recipe.objectives[0], ready, state, Alone()).accumulate()
    return policy.passes, facts


def test_a_term_that_sees_one_step_takes_one_pass_over_micro_batches():
    passes, _ = run("dapo", toy_batch([[3, 3], [3, 3]]), budget=4)
    assert passes == [(True, 3)] * 4


def test_a_group_that_fits_takes_one_pass_and_one_that_does_not_takes_two():
    whole, facts = run("gvpo", toy_batch([[3, 3], [3, 3]]), budget=6)
    assert whole == [(True, 6)] * 2
    assert "two_pass_drift" not in facts
    split, facts = run("gvpo", toy_batch([[3, 3], [3, 3]]), budget=4)
    assert split == [(False, 3)] * 4 + [(True, 3)] * 4
    assert facts["two_pass_drift"] == 0.0


def test_sequences_without_an_advantage_are_not_computed_and_change_nothing():
    """The second group has equal rewards: it stays in the denominator and costs no pass."""
    batch = toy_batch([[3, 2], [4, 4]], outcomes=[[0.0, 1.0], [1.0, 1.0]])
    passes, facts = run("dr_grpo", batch, budget=100)
    assert passes == [(True, 5)]
    assert facts["alive"] == pytest.approx(5 / 13)


def test_with_a_penalty_everything_is_computed():
    batch = toy_batch([[3, 2], [4, 4]], outcomes=[[0.0, 1.0], [1.0, 1.0]])
    passes, _ = run("grpo", batch, budget=100)
    assert passes == [(True, 13)]


@pytest.mark.parametrize("name", ["gvpo", "rebel"])
def test_a_regression_sees_steps_without_an_advantage(name):
    """Equal rewards still pull log-ratios together: the probe finds it, nothing declares it."""
    recipe = recipe_of(name)
    batch = toy_batch([[3, 2], [4, 4]], outcomes=[[0.0, 1.0], [1.0, 1.0]])
    ready = prepared(recipe, batch, toy_state(recipe, ToyPolicy()))
    ready = ready.with_({"weight": recipe.aggregate(ready)})
    assert bool(alive(recipe.objectives[0], ready).all())


def test_cuts_keep_units_whole_and_within_the_budget():
    batch = toy_batch([[3, 2], [4, 4], [1, 1]])
    costs = [3, 2, 4, 4, 1, 1]
    by_traj = cuts(batch, "traj", costs, 5)
    assert [len(p) for p in by_traj] == [5, 4, 5, 1]
    by_group = cuts(batch, "group", costs, 7)
    assert [len(p) for p in by_group] == [5, 8, 2]
    assert torch.cat(by_group).tolist() == list(range(15))


def test_nothing_to_learn_from_is_no_nan():
    """All rows of weight 0 or no rows at all: loss 0, no gradient."""
    batch = toy_batch([[3, 2]], outcomes=[[1.0, 1.0]])
    passes, facts = run("dr_grpo", batch, budget=100)
    assert passes == []
    assert facts == {"loss": 0.0, "alive": 0.0}


@pytest.mark.parametrize("budget", [4, 10_000])
@pytest.mark.parametrize("name", ["dapo", "gspo", "grpo", "gvpo", "dpo", "rebel"])
def test_the_pull_of_each_token_makes_up_the_gradient(name, budget):
    """`∇loss = −Σ_n pull[n] · ∇logp[n]`, in one pass and in two, in whatever order steps come."""
    recipe = recipe_of(name)
    state = toy_state(recipe, ToyPolicy(), budget)
    ready = prepared(recipe, toy_batch([[3, 2], [4, 1]]), state)
    pull = torch.zeros(len(ready), dtype=torch.float64)
    numbered = ready.with_({"row": torch.arange(len(ready))})
    order = torch.tensor([5, 6, 7, 8, 9, 0, 1, 2, 3, 4])
    problem = Problem(recipe.objectives[0], numbered.take(order), state, Alone(), 0, pull)
    problem.accumulate()
    logp = state.policy.columns(ready, frozenset({"logp"}), {})["logp"]
    parameters = list(state.policy.module.parameters())
    made = torch.autograd.grad((-pull * logp).sum(), parameters)
    for expected, p in zip(made, parameters, strict=True):
        assert torch.allclose(p.grad, expected, rtol=1e-9, atol=1e-12)
    assert bool((pull != 0).any())
