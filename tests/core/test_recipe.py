"""Recipes: deriving, phases, schedules, storing, and refusing."""

from __future__ import annotations

import math

import pytest

import anypo.core
import anypo.pieces
import anypo.recipes
from anypo.core import discover
from anypo.core.combine import Chain, Plus, Times
from anypo.core.dump import dump, load, rows
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups, Mean, Reinforce, Return
from anypo.core.piece import (
    Advantage,
    Aggregate,
    Likelihood,
    LogRatio,
    Off,
    Regularizer,
    Reward,
    Sampling,
    Surrogate,
    Update,
)
from anypo.core.recipe import Objective, Recipe
from anypo.core.schedule import Cosine, Linear, Piecewise, Schedule
from anypo.pieces.advantage.baseline import Baseline
from anypo.pieces.advantage.gae import GAE, Whiten
from anypo.pieces.ratio.ratio import Ratio
from anypo.pieces.regularizer.kl import KL
from anypo.pieces.regularizer.value import ValueLoss
from anypo.pieces.sampling.refill import Refill
from anypo.pieces.surrogate.clip import BalancedClip, Clip
from anypo.pieces.surrogate.regression import Preference

METHODS = discover.methods(anypo.recipes)
PARTS = discover.parts(anypo.core, anypo.pieces)


def test_the_default_recipe_is_plain_reinforce():
    assert METHODS["reinforce"]() == Recipe()
    assert (Recipe().ratio, Recipe().surrogate) == (Off(), Reinforce())


@pytest.mark.parametrize("name", METHODS)
def test_a_recipe_survives_storing(name):
    recipe = METHODS[name]().then(at=3, refresh="base", surrogate=Clip(0.1, 0.3))
    recipe = recipe.but(schedules={"update.lr_scale": Linear(1, 0, 10)})
    assert load(dump(recipe), PARTS) == recipe


def test_loading_makes_only_known_pieces():
    stored = dump(METHODS["grpo"]())
    stored["surrogate"]["piece"] = "os.system"
    with pytest.raises(UsageError, match="unknown piece"):
        load(stored, PARTS)
    stored = dump(METHODS["grpo"]())
    stored["surrogate"]["wide"] = 1
    with pytest.raises(UsageError, match="unknown fields wide"):
        load(stored, PARTS)


def test_phases_and_schedules_are_resolved_by_iteration():
    recipe = METHODS["grpo"]().then(at=5, refresh="base", ratio=Ratio("traj", mean=True))
    recipe = recipe.but(schedules={"surrogate.high": Linear(0.4, 0.2, 4)})
    assert recipe.at(4).ratio == Ratio("step")
    assert recipe.at(5).ratio == Ratio("traj", mean=True)
    assert recipe.at(2).surrogate.high == pytest.approx(0.3)
    assert recipe.at(9).surrogate.high == pytest.approx(0.2)
    assert (recipe.refreshes(5), recipe.refreshes(4)) == (("base",), ())
    assert Cosine(1, 0, 10)(5) == pytest.approx(0.5)
    assert [Piecewise((0, 3), (1.0, 2.0))(k) for k in (0, 2, 3)] == [1.0, 1.0, 2.0]


def test_set_reaches_nested_fields_and_names_the_nearest():
    recipe = METHODS["ppo"]().set("surrogate.low", 0.1).set("regularize.0.clip", 0.3)
    assert recipe.surrogate.low == 0.1
    assert recipe.regularize[0].clip == 0.3
    assert METHODS["dr_grpo"]().set("aggregate.length", 7).aggregate.length == 7
    with pytest.raises(UsageError, match="did you mean high"):
        recipe.set("surrogate.hihg", 1.0)
    with pytest.raises(UsageError, match="did you mean surrogate"):
        recipe.but(surogate=Clip())


def test_a_piece_on_the_wrong_axis_is_refused():
    with pytest.raises(UsageError, match="belongs to the axis 'ratio'"):
        Recipe(surrogate=Ratio("step"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="tuple"):
        Recipe(regularize=KL())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", [n for n in METHODS if "group" in METHODS[n].info.parameters])
def test_a_group_of_one_is_refused_by_name(name):
    if name in ("reinforce", "reinforce_pp", "remax", "dvpo", "future_reward_subset"):
        return  # it has no group baseline, and one trajectory per prompt is its default
    with pytest.raises(UsageError, match=f"^{name}: .*(group|trajectories)"):
        METHODS[name](group=1)


def test_an_unknown_argument_names_the_recipe_and_the_nearest():
    with pytest.raises(UsageError, match=r"gspo has no option 'clip_lo'; did you mean clip_low"):
        METHODS["gspo"](clip_lo=1e-3)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Clip(-0.1, 0.2),
        lambda: Clip(0.2, 0.2, 0.9),
        lambda: BalancedClip(low=0.9, low_max=0.8),
        lambda: KL(beta=-1.0),
        lambda: KL(form="k9"),
        lambda: Ratio("group"),
        lambda: Ratio("step", to="logp_new"),
        lambda: GAE(gamma=1.1),
        lambda: Groups(0),
        lambda: Mean("token"),
        lambda: Mean("traj", "batch", length=8),
        lambda: Baseline(scale="var"),  # pyright: ignore[reportArgumentType]
        lambda: Refill(0),
        lambda: ValueLoss(coef=0.0),
        lambda: Preference(smoothing=0.5),
        lambda: Return(2.0),
    ],
)
def test_bad_hyper_parameters_are_refused(build):
    with pytest.raises(UsageError):
        build()


def test_what_recipes_declare():
    grpo, gspo, ppo, dpo = (METHODS[n]() for n in ("grpo", "gspo", "ppo", "dpo"))
    assert grpo.frozen_needs == {"logp_old", "ref.base"}
    assert METHODS["grpo"](beta=0.0).references == frozenset()
    assert (grpo.couples, gspo.couples, dpo.couples) == ("step", "traj", "group")
    assert METHODS["bapo"]().couples == "batch"
    assert ppo.modules() == {"value": 1}
    assert ppo.objectives[0].live == {"logp", "value"}
    assert ppo.frozen_needs == {"logp_old", "value", "value_next", "value_old"}


def test_combinators_keep_to_one_axis():
    chain = GAE() >> Whiten()
    assert isinstance(chain, Chain) and chain.axis == "advantage"
    assert isinstance(Return() + Return(), Plus)
    assert isinstance(0.5 * Return(), Times)
    with pytest.raises(UsageError, match="different axes"):
        Return() + Off()


def test_rows_show_every_field_by_path():
    shown = rows(METHODS["gspo"]())
    assert shown["surrogate.low"] == "0.0003"
    assert shown["ratio"] == "Ratio"
    assert shown["sampling.size"] == "8"


def test_an_objective_adds_penalties_and_subtracts_what_is_maximised():
    objective = Objective(regularize=(KL("base", 1.0, "k1"),), aggregate=Mean("batch"))
    import torch

    from anypo.core.batch import Batch

    columns = {"logp": torch.tensor([-1.0]), "ref.base": torch.tensor([-3.0])}
    columns |= {"advantage": torch.tensor([2.0]), "weight": torch.tensor([0.5])}
    loss = objective.loss(Batch(columns, {"traj": torch.tensor([0])}))
    assert float(loss) == pytest.approx(0.5 * (-(2.0 * -1.0) + 2.0))
    assert math.isfinite(float(loss))


@pytest.mark.parametrize(
    "base",
    [
        Reward,
        Sampling,
        Advantage,
        LogRatio,
        Surrogate,
        Regularizer,
        Aggregate,
        Likelihood,
        Update,
        Schedule,
    ],
)
def test_a_class_is_abstract_or_final(base):
    """The base of an axis cannot be put into a recipe by mistake."""
    with pytest.raises(TypeError, match="abstract"):
        base()
