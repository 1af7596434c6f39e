"""For every recipe: any split, any order, any padding gives the same gradient, to rounding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anypo.recipes
from anypo.core import discover
from anypo.core.batch import Batch
from anypo.core.recipe import Recipe
from anypo.engine.collect import credit, shape
from anypo.engine.columns import add_frozen
from anypo.engine.problem import Problem
from anypo.engine.state import State
from tests.toys import ToyPolicy, toy_batch, toy_state

RECIPES = discover.methods(anypo.recipes)
LATER = [f"{n}@{p.at}" for n, m in RECIPES.items() for p in m().phases if p.changes]
STAGES = [*RECIPES, *LATER]
"""Every recipe as it begins, and as it is from an iteration on: `vc_ppo@10`."""

QUIET = frozenset({"fiberpo", "p3o_pairwise", "risk_po"})
"""Recipes whose bounds hold both ways, or that only push down, so that a few steps, all far away,
have no gradient."""


class Alone:
    """A backend of one rank."""

    rank, world = 0, 1

    def sum_(self, tensors):
        """Nothing to add."""


def recipe_of(name: str) -> Recipe:
    """The method, or a later stage of it, with groups that fit the toy batches."""
    name, _, later = name.partition("@")
    fits = {} if "group" not in RECIPES[name].info.parameters or name == "rebel" else {"group": 2}
    fits |= {"group": 3} if name == "reg_grpo" else {}  # it refuses pairs
    recipe = RECIPES[name](**fits)
    return recipe.at(int(later)) if later else recipe


def prepared(recipe: Recipe, batch: Batch, state: State, backend=None) -> Batch:
    """The batch as the loop hands it to the optimizer, with an old policy of its own."""
    with state.policy.using(ToyPolicy(seed=5).snapshot()):
        batch = recipe.sampling.mark(batch)
        batch = add_frozen(batch, recipe.early_needs, state, backend or Alone())
        batch = shape(recipe, batch)
        needs = recipe.frozen_needs | {"logp_old"}
        batch = add_frozen(batch, frozenset(needs), state, backend or Alone())
    return credit(recipe, batch)


def gradient(name: str, batch: Batch, budget: int = 10_000, padding: int = 0, backend=None):
    """The flat gradient of policy and heads, and the metrics of the objective."""
    recipe = recipe_of(name)
    state = toy_state(recipe, ToyPolicy(padding=padding), budget)
    ready = prepared(recipe, batch, state, backend)
    metrics = Problem(recipe.objectives[0], ready, state, backend or Alone()).accumulate()
    parameters = state.parameters(0)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return torch.cat([g.flatten() for g in grads]), metrics


groups = st.lists(st.lists(st.integers(1, 5), min_size=2, max_size=2), min_size=2, max_size=4)


@pytest.mark.parametrize("name", STAGES)
@given(lengths=groups, budget=st.integers(1, 12), padding=st.integers(0, 3), seed=st.integers(0, 9))
@settings(max_examples=8)
def test_split_and_padding_change_nothing(name, lengths, budget, padding, seed):
    batch = toy_batch(lengths, seed)
    whole, facts = gradient(name, batch)
    split, other = gradient(name, batch, budget, padding)
    assert whole.abs().max() > 0 or name in QUIET
    torch.testing.assert_close(split, whole, rtol=1e-10, atol=1e-12)
    assert other["loss"] == pytest.approx(facts["loss"], rel=1e-10, abs=1e-12)


def reordered(batch: Batch, order: list[int]) -> Batch:
    """The same trajectories in another order."""
    parts = [batch.take_units("traj", [k]) for k in order]
    groups = [int(batch.take_units("traj", [k]).id("prompt")[0]) for k in order]
    kept = ("position", "prompt", "stage")
    ids = {name: torch.cat([p.ids[name] for p in parts]) for name in kept}
    for i, part in enumerate(parts):
        ids.setdefault("traj", []).append(torch.full((len(part),), i))  # pyright: ignore
        ids.setdefault("group", []).append(torch.full((len(part),), groups[i]))  # pyright: ignore
    traj, group = torch.cat(ids.pop("traj")), torch.cat(ids.pop("group"))
    columns = {k: torch.cat([p[k] for p in parts]) for k in batch.columns}
    table = {
        k: v[order] if isinstance(v, torch.Tensor) else [v[i] for i in order]
        for k, v in batch.tables["traj"].items()
    }
    inputs = {k: [row for p in parts for row in p.inputs[k]] for k in batch.inputs}
    all_ids = {**ids, "traj": traj, "seq": traj, "group": group, "segment": 2 * traj + ids["stage"]}
    return Batch(columns, all_ids, {"traj": table}, inputs)


@pytest.mark.parametrize("name", STAGES)
@given(order=st.permutations(range(6)), seed=st.integers(0, 9))
@settings(max_examples=6)
def test_order_of_trajectories_changes_nothing(name, order, seed):
    batch = toy_batch([[3, 1], [2, 4], [1, 2]], seed)
    plain, _ = gradient(name, batch)
    shuffled, _ = gradient(name, reordered(batch, list(order)), budget=4)
    torch.testing.assert_close(shuffled, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", STAGES)
def test_first_ratio_is_one_and_gradient_is_the_policy_gradient(name):
    """Before the first update every ratio is exactly 1, so ∂loss/∂logp is that of a plain step."""
    recipe = recipe_of(name)
    state = toy_state(recipe, ToyPolicy())
    batch = recipe.sampling.mark(toy_batch([[3, 2], [1, 4]]))
    batch = add_frozen(batch, recipe.early_needs, state, Alone())
    batch = shape(recipe, batch)
    needs = recipe.frozen_needs if recipe.wants_old else recipe.frozen_needs - {"logp_old"}
    batch = credit(recipe, add_frozen(batch, needs, state, Alone()))
    problem = Problem(recipe.objectives[0], batch, state, Alone())
    metrics = problem.accumulate()
    if recipe.ratio.needs >= {"logp_old"}:
        assert metrics["ratio/max"] == metrics["ratio/min"] == 1.0
        assert metrics["approx_kl"] == 0.0


@pytest.mark.parametrize("name", ["grpo", "dapo", "gspo", "cispo", "dr_grpo", "bapo"])
def test_gradient_at_ratio_one_is_minus_advantage_times_weight(name):
    recipe = recipe_of(name)
    objective = recipe.but(regularize=()).objectives[0]
    batch = credit(recipe, shape(recipe, toy_batch([[3, 2], [1, 4]])))
    batch = batch.with_({"weight": objective.aggregate(batch)})
    leaf = batch["logp_mu"].clone().requires_grad_()
    live = batch.with_({"logp": leaf, "logp_old": batch["logp_mu"], "ref.base": batch["logp_mu"]})
    (grad,) = torch.autograd.grad(objective.loss(live), leaf)
    torch.testing.assert_close(grad, -batch["advantage"] * batch["weight"], rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", STAGES)
def test_a_poisoned_step_of_weight_zero_reaches_nothing(name):
    """A NaN in a step that is not selected reaches neither the loss nor a gradient."""
    recipe = recipe_of(name)
    objective = recipe.objectives[0]
    state = toy_state(recipe, ToyPolicy())
    ready = prepared(recipe, toy_batch([[3, 2], [1, 4]]), state)
    extra = toy_batch([[2, 2]], seed=4)
    poison = prepared(recipe, extra, state)
    bad = poison.with_({k: torch.full_like(x, torch.nan) for k, x in poison.columns.items()})
    drop = torch.cat([torch.ones(len(ready)), torch.zeros(len(bad))])

    class Selected(type(recipe.aggregate)):
        """The recipe's weights on the first steps, 0 on the poisoned ones."""

        def __call__(self, batch: Batch):
            chosen = batch["chosen"] != 0
            inner = super().__call__(batch.take(chosen))
            return torch.zeros(len(batch)).double().index_put((chosen,), inner)

    joined = (ready + bad).with_({"chosen": drop})
    aggregate = object.__new__(Selected)
    aggregate.__dict__.update(vars(recipe.aggregate))
    selected = recipe.but(aggregate=aggregate).objectives[0]
    plain = Problem(objective, ready, state, Alone()).accumulate()
    expected = [None if p.grad is None else p.grad.clone() for p in state.parameters(0)]
    for p in state.parameters(0):
        p.grad = None
    poisoned = Problem(selected, joined, state, Alone()).accumulate()
    assert poisoned["loss"] == pytest.approx(plain["loss"], rel=1e-12)
    for p, e in zip(state.parameters(0), expected, strict=True):
        if e is not None:
            torch.testing.assert_close(p.grad, e, rtol=1e-12, atol=1e-14)
