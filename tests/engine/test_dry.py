"""A dry run tells options that act from options that do not, and shows what a method pushes."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, get_args, get_type_hints

import pytest
import torch

import anypo.recipes
from anypo.core import discover
from anypo.core.errors import UsageError
from anypo.core.schedule import Linear
from anypo.engine.dry import (
    HORIZON,
    SCENES,
    collected,
    dry_run,
    gradients,
    ineffective,
    iterations,
    pushes,
)
from anypo.engine.problem import weigh

METHODS = discover.methods(anypo.recipes)


BESIDE: dict[str, dict[str, Any]] = {"kl_estimators.weighted": {"place": "loss"}}
"""Arguments without which another one is refused."""


def arguments() -> list[tuple[str, str, list[object]]]:
    """Every argument of every method, with other values than its default."""
    return [
        (name, key, others(default, get_type_hints(method.info.build)[key]))
        for name, method in METHODS.items()
        for key, default in method.info.parameters.items()
    ]


def others(default: Any, kind: Any) -> list[object]:
    """Other values of an argument: the other words, the other truth, some less or more."""
    if words := [w for w in get_args(kind) if w != default]:
        return words
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [default + 2, default - 1]
    if isinstance(default, str):
        return [default + "x"]
    special = {0.0: 0.2, math.inf: 2.0, -math.inf: 0.5, 10.0: 0.5}
    return [special.get(default, default * 0.8), default * 1.25]


@pytest.mark.parametrize(("name", "key", "values"), arguments())
def test_every_argument_of_every_method_acts(name, key, values):
    """The first of the values that the method takes trains otherwise than the default."""
    method, beside, taken = METHODS[name], BESIDE.get(f"{name}.{key}", {}), None
    for value in values:
        with suppress(UsageError):
            taken = taken or method(**beside, **{key: value})
    assert taken is not None and not ineffective(method(**beside), taken)


EFFECTIVE = [
    ("grpo", "ratio.cap", 10.0),
    ("grpo", "ratio.cap", 50.0),
    ("grpo", "ratio.level", "turn"),
    ("grpo", "ratio.to", "logp_mu"),
    ("grpo", "advantage.ddof", 0),
    ("grpo", "advantage.limit", 2.0),
    ("grpo", "surrogate.dual", 3.0),
    ("grpo", "surrogate.dual", 100.0),
    ("grpo", "surrogate.low", 0.19),
    ("grpo", "update.epochs", 2),
    ("grpo", "update.max_grad_norm", 0.5),
    ("grpo", "update.beta2", 0.95),
    ("grpo", "update.lr_scale", 2.0),
    ("grpo", "regularize.0.form", "k2"),
    ("grpo", "regularize.0.ref", "other"),
    ("gspo", "surrogate.high", 4.1e-4),
    ("dapo", "reward.0.limit", 1000),
    ("dapo", "reward.0.factor", 0.5),
    ("dapo", "sampling.second.rounds", 3),
    ("bapo", "surrogate.increment", 0.1),
    ("ppo", "advantage.second.within", "traj"),
    ("ppo", "regularize.0.clip", math.inf),
    ("reinforce", "advantage.gamma", 0.9),
]

INEFFECTIVE = [
    ("reinforce", "surrogate.low", 0.1),  # the ratio is off: it is 1 always
    ("rloo", "surrogate.high", 0.1),
    ("cispo", "surrogate.low", 5.0),  # a ratio is never below 0
    ("dr_grpo", "advantage.ddof", 0),  # nothing is divided by a deviation
    ("dr_grpo", "advantage.eps", 0.1),
    ("grpo", "advantage.limit", 9.0),  # with 8 in a group no |A| is above 7/√8
    ("grpo", "ratio.mean", True),  # the mean over a step is the step
    ("flow_grpo", "advantage.limit", 6.0),  # with 24 in a group no |A| is above √23
]


@pytest.mark.parametrize(("name", "path", "value"), EFFECTIVE)
def test_a_field_that_acts_is_effective(name, path, value):
    recipe = METHODS[name]()
    assert not ineffective(recipe, recipe.set(path, value))


@pytest.mark.parametrize(("name", "path", "value"), INEFFECTIVE)
def test_a_field_that_changes_no_gradient_is_ineffective(name, path, value):
    recipe = METHODS[name]()
    assert ineffective(recipe, recipe.set(path, value))


def test_equal_recipes_are_ineffective_and_a_dry_run_repeats_itself():
    grpo = METHODS["grpo"]
    assert ineffective(grpo(), grpo())
    first, second = dry_run(grpo()), dry_run(grpo())
    assert len(first) == 2 * len(SCENES)  # a loss and the gradient of logp
    assert all(torch.equal(x, second[name]) for name, x in first.items())


def test_a_clip_acts_only_where_the_policy_has_moved():
    base, narrow = METHODS["grpo"](), METHODS["grpo"](clip=0.1)
    assert not ineffective(base, narrow)
    assert ineffective(base, narrow, fresh=True)
    assert not ineffective(base, METHODS["grpo"](eps=1e-2), fresh=True)


def test_a_schedule_hides_the_field_it_sets():
    scheduled = METHODS["gspo"]().but(schedules={"surrogate.low": Linear(0.1, 0.2, 30)})
    assert iterations(scheduled) == [0, 15, 30]
    assert ineffective(scheduled, scheduled.set("surrogate.low", 0.3))
    assert not ineffective(scheduled, scheduled.set("surrogate.high", 0.3))


def test_a_later_phase_counts():
    grpo = METHODS["grpo"]()
    later = grpo.then(at=5, surrogate=METHODS["gspo"]().surrogate)
    assert not ineffective(grpo, later)
    assert not ineffective(grpo, grpo.then(at=5, refresh="base"))


def test_scenes_have_ties_uneven_lengths_and_columns_on_both_sides_of_the_bounds():
    batch = collected(METHODS["grpo"](), 0)
    spread = batch.std(batch.sum(batch["score"], within="traj"), over="traj", within="group")
    assert bool((spread == 0).any())
    assert bool((spread > 0).any())
    lengths = batch.size("step", "traj")
    assert (int(lengths.min()), int(lengths.max())) == (2, HORIZON)
    ratio = (batch["live logp"] - batch["logp_old"]).exp()
    advantage = batch["advantage"]
    for sign in (1, -1):
        mine = ratio[advantage.sign() == sign]
        assert float(mine.min()) < 0.6
        assert float(mine.max()) > 1.4
    assert bool((advantage[spread == 0] == 0).all())


def test_reinforce_pushes_by_the_reward_to_go():
    recipe = METHODS["reinforce"]()
    batch = weigh(recipe.objectives[0], collected(recipe, 0))
    _, found = gradients(recipe.objectives[0], batch)
    outcome = batch.sum(batch["reward"], within="traj")
    expected = -outcome / batch.count("traj")  # an outcome reaches every step; mean over answers
    torch.testing.assert_close(found["logp"], expected, rtol=1e-12, atol=0)


def test_pushes_show_what_tells_methods_apart():
    grpo, cispo = pushes(METHODS["grpo"](beta=0)), pushes(METHODS["cispo"]())
    above, below = "right answers, ratio above 1.2", "wrong answers, ratio below 0.8"
    assert (grpo[above], grpo[below]) == (0.0, 0.0)  # clipped: no gradient
    assert cispo[above] > 0.5  # the weight is clipped, the gradient stays
    assert cispo[below] < 0
    for name in ("right", "wrong"):
        short, long = f"{name} answers, short trajectories", f"{name} answers, long trajectories"
        # 1/length per step in GRPO, the same weight for every step in Dr. GRPO.
        assert abs(grpo[short] / grpo[long]) > 1.5
        dr_grpo = pushes(METHODS["dr_grpo"]())
        assert abs(dr_grpo[short] / dr_grpo[long]) < 1.0
