"""Rollouts of controllers: fragments, what happens at their ends, and the random streams."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from anypo.backends.gymnasium import GymTask
from anypo.core.batch import concat
from anypo.core.errors import UsageError
from anypo.core.request import Request
from anypo.policies.categorical import CategoricalPolicy
from anypo.rollout.control import rollout

NEEDS = frozenset({"value", "value_next"})


class Countdown:
    """Episodes end at `ends` steps, in turn terminated and truncated; rewards count the steps.

    An observation is (episode number + step / 10, seed as a fraction): each one is its own name.
    """

    name = "countdown"
    ends = (3, 2)

    def __init__(self) -> None:
        self.episode, self.seeds, self.closed = -1, [], False

    def make(self):
        return type(self)()

    def reset(self, seed):
        self.episode, self.steps = self.episode + 1, 0
        self.seeds.append(seed)
        return self.look()

    def look(self):
        return np.array([self.episode + self.steps / 10, self.seeds[-1] / 2**63], dtype=np.float32)

    def step(self, action):
        self.steps += 1
        over = self.steps == self.ends[self.episode % 2]
        kind = self.episode % 2
        return self.look(), float(self.steps), over and kind == 0, over and kind == 1

    def close(self):
        self.closed = True


class Scripted:
    """Takes action 1 where the uniform number is at least a half; log ½ either way."""

    def act(self, observation, uniform, temperature):
        action = (uniform >= 0.5).long()
        return action, torch.full((len(action),), math.log(0.5))


class FirstFeature(nn.Module):
    def forward(self, x):
        return x[:, :1]


def test_fragments_end_by_termination_truncation_or_horizon():
    """Of 7 steps, 3 are an episode that terminates, 2 one that is truncated, and 2 are cut."""
    batch = rollout(Request(1, horizon=7, start=4, version=3), Scripted(), Countdown())
    assert batch.ids["traj"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert batch["reward"].tolist() == [1, 2, 3, 1, 2, 1, 2]
    first = torch.tensor([0.0, 0.1, 0.2, 1.0, 1.1, 2.0, 2.1])
    torch.testing.assert_close(batch.inputs["observation"][:, 0], first)
    after = torch.tensor([0.1, 0.2, 0.3, 1.1, 1.2, 2.1, 2.2])
    torch.testing.assert_close(batch.inputs["next_observation"][:, 0], after)
    table = batch.table("traj")
    assert table["terminated"].tolist() == [True, False, False]
    assert table["truncated"].tolist() == [False, True, True]
    assert table["episode_return"][:2].tolist() == [6, 3]
    assert table["episode_length"][:2].tolist() == [3, 2]
    assert table["episode_return"][2].isnan() and table["episode_length"][2].isnan()
    assert batch.ids["prompt"].tolist() == [4] * 7
    assert batch.ids["version"].tolist() == [3] * 7


def test_the_bootstrap_is_zero_at_termination_and_the_final_observation_at_truncation():
    """With V = the first feature: 0 after step 3; V(1.2) and V(2.2), never the next episode's."""
    batch = rollout(Request(1, horizon=7), Scripted(), Countdown())
    policy = CategoricalPolicy(2, 2)
    columns = policy.columns(batch, NEEDS, {"value": FirstFeature()})
    expected = torch.tensor([0.1, 0.2, 0.0, 1.1, 1.2, 2.1, 2.2])
    torch.testing.assert_close(columns["value_next"], expected)
    delta = batch["reward"] + columns["value_next"] - columns["value"]
    advantage = batch.scan(delta, 1.0, within="traj")  # λ = γ = 1: return + bootstrap − value
    torch.testing.assert_close(
        advantage, torch.tensor([6 - 0, 5 - 0.1, 3 - 0.2, 3 + 1.2 - 1, 2 + 1.2 - 1.1, 3.2, 2.1])
    )


def test_an_episode_that_ends_with_the_horizon_leaves_no_empty_fragment():
    batch = rollout(Request(2, horizon=5), Scripted(), Countdown())
    assert batch.ids["traj"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert not batch.table("traj")["episode_return"].isnan().any()
    assert len(batch.table("traj")["terminated"]) == 4


def test_samples_of_a_prompt_share_their_episodes_and_form_groups():
    batch = rollout(Request(2, samples=3, horizon=5), Scripted(), Countdown())
    group = batch.at("traj").ids["group"].tolist()
    assert group == [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3]
    assert batch.at("traj").ids["prompt"].tolist() == [0] * 6 + [1] * 6
    seeds = batch.inputs["observation"][:, 1]
    assert len(seeds.unique()) == 4, "one key for each prompt and episode"
    torch.testing.assert_close(batch.mean(seeds, within="group"), seeds)
    actions = batch.inputs["action"].reshape(6, 5)
    assert len({tuple(row) for row in actions.tolist()}) > 3, "the samples act on their own"


def test_without_samples_a_group_is_a_trajectory():
    batch = rollout(Request(3, horizon=7), Scripted(), Countdown())
    assert torch.equal(batch.ids["group"], batch.ids["traj"])


def test_a_stream_depends_on_its_own_key_alone():
    task, policy = GymTask("CartPole-v1"), CategoricalPolicy(4, 2)
    request = Request(4, horizon=60, seed=3, version=2)
    whole = rollout(request, policy, task)
    again = rollout(request, policy, task)
    assert torch.equal(again["logp_mu"], whole["logp_mu"])
    assert torch.equal(again.inputs["observation"], whole.inputs["observation"])
    alone = rollout(replace(request, prompts=1, start=2), policy, task)
    for name in ("observation", "next_observation", "action", "terminal"):
        assert torch.equal(alone.inputs[name], whole.inputs[name][120:180])
    for change in ({"seed": 4}, {"version": 3}, {"start": 4}):
        other = rollout(replace(request, **change), policy, task)
        assert not torch.equal(other.inputs["observation"][0], whole.inputs["observation"][0])


def test_the_first_ratio_is_one():
    task = GymTask("CartPole-v1")
    policy = CategoricalPolicy(4, 2, temperature=2.0)
    nn.init.normal_(policy.module[-1].weight, generator=torch.Generator().manual_seed(0))
    batch = rollout(Request(4, horizon=100, temperature=2.0), policy, task)
    logp = policy.columns(batch, frozenset({"logp"}), {})["logp"].detach()
    assert float((logp - batch["logp_mu"]).abs().max()) < 1e-6
    assert float(logp.std()) > 0.1


def test_slices_and_joins_keep_the_rows_of_their_steps():
    first = rollout(Request(1, horizon=7), Scripted(), Countdown())
    second = rollout(Request(1, horizon=5, start=1, version=1), Scripted(), Countdown())
    part = concat([first, second]).take(torch.tensor([9, 2]))
    rows = part.inputs["observation"][part.ids["seq"]]
    torch.testing.assert_close(rows[:, 0], torch.tensor([0.2, 0.2]))
    assert part.table("traj")["terminated"][part.ids["traj"]].tolist() == [True, True]
    assert part.ids["version"].tolist() == [1, 0]


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_failed_simulation_is_no_reward(what):
    class Broken(Countdown):
        def step(self, action):
            after, reward, *over = super().step(action)
            if what == "reward":
                return after, float("nan"), *over
            return after * float("inf"), reward, *over

    with pytest.raises(UsageError, match=r"countdown returned .* not finite"):
        rollout(Request(1, horizon=3), Scripted(), Broken())


def test_environments_are_closed():
    made = []

    class Watched(Countdown):
        def make(self):
            made.append(Countdown())
            return made[-1]

    rollout(Request(2, samples=2, horizon=3), Scripted(), Watched())
    assert [env.closed for env in made] == [True] * 4
