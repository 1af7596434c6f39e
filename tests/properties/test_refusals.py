"""For every recipe: arguments out of their range are refused when the recipe is built."""

from __future__ import annotations

import math
from typing import Any

import pytest

import anypo.recipes
from anypo.core import discover
from anypo.core.errors import UsageError

RECIPES = discover.methods(anypo.recipes)
ANY_SIGN: dict[str, str] = {
    "aapo.clip_low": "a bound on a difference of rewards, not a distance",
    "f_dpg.baseline": "a mean of pseudo-rewards",
    "bnpo.reward_min": "the least reward, whatever it is",
    "raft.least": "the least reward that is imitated, whatever it is",
}
"""`recipe.argument` → why it may be negative."""

TEXTS = frozenset({"marker"})
"""Arguments that may be any text: what separates the parts of an answer."""

ALONE = ("reinforce", "reinforce_pp", "remax", "dvpo", "future_reward_subset")
"""Recipes that need no groups, and may sample them."""


def arguments(kinds: tuple[type, ...]) -> list[tuple[str, str]]:
    """Every argument of every recipe whose default is of some kinds."""
    return [
        (name, argument)
        for name, found in RECIPES.items()
        for argument, default in found.info.parameters.items()
        if type(default) in kinds
    ]


def refused(name: str, argument: str, value: Any) -> str:
    """The sentence with which a value is refused."""
    with pytest.raises(UsageError) as caught:
        RECIPES[name](**{argument: value})
    return str(caught.value)


@pytest.mark.parametrize(("name", "argument"), arguments((int, float)))
def test_negative_and_undefined_numbers_are_refused(name, argument):
    whole = isinstance(RECIPES[name].info.parameters[argument], int)
    for value in (-1000 if whole else -1000.0, math.nan):
        if f"{name}.{argument}" not in ANY_SIGN or value != value:
            said = refused(name, argument, value)
            assert said.startswith(f"{name}: ")
            assert "must be" in said or "needs" in said


@pytest.mark.parametrize(("name", "argument"), [x for x in arguments((str,)) if x[1] not in TEXTS])
def test_unknown_words_are_refused(name, argument):
    said = refused(name, argument, "nonsense")
    assert said.startswith(f"{name}: ")


@pytest.mark.parametrize("name", [n for n, a in arguments((int,)) if a == "group"])
def test_a_group_of_none_is_refused(name):
    assert refused(name, "group", 0).startswith(f"{name}: ")


@pytest.mark.parametrize(
    "name", [n for n, a in arguments((int,)) if a == "group" and n not in ALONE]
)
def test_a_group_of_one_is_refused(name):
    assert "group" in refused(name, "group", 1)


def test_a_refusal_names_recipe_field_and_range():
    assert refused("grpo", "clip", -0.1) == "grpo: Clip(low=-0.1): low must be between 0 and 1"
    assert refused("dpo", "smoothing", 0.5).endswith("smoothing must be in [0, 0.5)")
