"""Rewards of single steps, from what a reward function says to the credit of every token."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

import anypo
from anypo.backends.load_reward import load_reward
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups, Return
from anypo.core.recipe import Recipe
from anypo.engine.collect import collect, credit, shape
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.pieces.reward.place import Place
from anypo.pieces.sampling.split import Split
from anypo.tasks.task import Problems
from tests.identities.small import close, last, steps


def answers(lengths: list[int], stage: list[int], said: list[Any], groups=None) -> Batch:
    """Answers cut into segments, with what a reward function reports as `steps` of each."""
    batch = steps(lengths, groups, {"steps": said}, reward=last(lengths, [9.0] * len(lengths)))
    begins = [True, *(a != b for a, b in pairwise(stage))]
    firsts = [sum(lengths[:k]) for k in range(len(lengths))]
    segment = torch.tensor([b or n in firsts for n, b in enumerate(begins)]).long().cumsum(0) - 1
    ids = {**batch.ids, "segment": segment, "stage": torch.tensor(stage)}
    return replace(batch, ids=ids)


def test_rewards_stand_at_the_ends_of_steps_and_reach_back_as_returns():
    """Three steps of 2, 1 and 2 tokens worth 1, −2 and ½: returns −½, −½, −3/2, ½, ½."""
    recipe = Recipe(reward=(Place("steps"),), advantage=Return())
    batch = shape(recipe, answers([5], [0, 0, 1, 2, 2], [[1.0, -2.0, 0.5]]))
    close(batch["reward"], [0, 1, -2, 0, 0.5])
    close(credit(recipe, batch)["advantage"], [-0.5, -0.5, -1.5, 0.5, 0.5])
    near = recipe.but(advantage=Return(gamma=0.5))
    close(credit(near, batch)["advantage"], [0.03125, 0.0625, -1.875, 0.25, 0.5])


def test_what_no_step_is_said_of_gets_0_and_what_is_too_much_is_dropped():
    recipe = Recipe(reward=(Place("steps"),))
    batch = answers([3, 2], [0, 1, 1, 0, 0], [[1.0], [2.0, 3.0]])
    close(shape(recipe, batch)["reward"], [1, 0, 0, 0, 2])


def test_a_number_for_every_token_needs_no_segments():
    recipe = Recipe(reward=(Place("steps"),))
    batch = steps([3, 1], None, {"steps": [[1.0, -2.0, 0.5], [4.0]]}, reward=[0, 0, 9, 9])
    shaped = shape(recipe, batch)
    close(shaped["reward"], [1, -2, 0.5, 4])
    close(credit(recipe, shaped)["advantage"], [-0.5, -1.5, 0.5, 4])
    short = steps([3, 1], None, {"steps": [[1.0, -2.0], [4.0]]}, reward=[0, 0, 9, 9])
    with pytest.raises(UsageError, match="needs segments, or a list 'steps' with a number for ev"):
        shape(recipe, short)


def test_tool_output_between_steps_changes_no_return():
    """Tokens of a tool are no steps: their places in the sequence are left out."""
    recipe = Recipe(reward=(Place("steps"),))
    plain = answers([4], [0, 0, 1, 1], [[1.0, 3.0]])
    apart = replace(plain, ids={**plain.ids, "position": torch.tensor([5, 6, 90, 91])})
    close(credit(recipe, shape(recipe, plain))["advantage"], [4, 4, 3, 3])
    close(credit(recipe, shape(recipe, apart))["advantage"], [4, 4, 3, 3])


def test_process_supervision_by_hand():
    """Rewards 1, 0 and 2, 1 of four steps: mean 1, sd √(2/3); a token earns what is still to come.

    Normalised (0, −1, 1, 0)·√(3/2): the first answer's tokens earn −1, −1, −1, the second's 1, 0.
    """
    recipe = anypo.recipe("grpo_process", group=2, eps=0.0)
    batch = answers([3, 2], [0, 0, 1, 0, 1], [[1.0, 0.0], [2.0, 1.0]])
    found = credit(recipe, shape(recipe, batch))["advantage"]
    close(found, [x * 1.5**0.5 for x in (-1.0, -1.0, -1.0, 1.0, 0.0)])


def test_equal_steps_and_a_lone_step_give_exactly_0():
    recipe = anypo.recipe("grpo_process", group=2)
    batch = answers([2, 1, 1, 1], [0, 1, 0, 0, 0], [[0.1, 0.1], [0.1], [5.0], [5.0]], [0, 0, 1, 1])
    found = credit(recipe, shape(recipe, batch))["advantage"]
    assert found.tolist() == [0.0] * 5


def test_from_a_reward_function_to_returns_on_real_tokens():
    """A function says how long each part is: every token's return is the rest of the lengths."""

    def lines(completions):
        parts = [c.split("e") for c in completions]
        return [{"score": 0.0, "steps": [float(len(x)) for x in p]} for p in parts]

    rows = tuple({"prompt": p} for p in ("ab", "cd"))
    policy = load_policy("tiny", task=None)
    task = Problems("lines", rows, (), load_reward([lines, "repetition"]), 30)
    recipe = Recipe(sampling=Groups(16) >> Split("e"), reward=(Place("steps"),), advantage=Return())
    state = State.start(recipe, policy, Settings(prompts=2, horizon=30, seed=1))
    batch, facts = collect(recipe, Local(task), state)
    assert "rewards/lines/mean" in facts and batch.count("segment") > batch.count("traj")
    found = credit(recipe, batch)["advantage"]
    for k, text in enumerate(batch.table("traj")["completion"]):
        mine = (batch.id("traj") == k).nonzero().flatten()
        lengths = [len(part) for part in text.split("e")]
        stages = batch.id("stage")[mine].tolist()
        # an answer that ends with the marker ends its last step there
        ends = len({*stages})
        assert found[mine].tolist() == [float(sum(lengths[s:ends])) for s in stages]
