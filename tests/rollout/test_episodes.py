"""Whole episodes: one from each environment, keyed by their number alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anypo.backends.gymnasium import GymTask
from anypo.policies.categorical import CategoricalPolicy
from anypo.rollout.episodes import episodes


class Walk:
    """Ends after as many steps as its seed says; a step is rewarded by its action."""

    name, horizon = "walk", 6

    def __init__(self) -> None:
        self.closed = 0

    def make(self):
        return World(self)


class World:
    def __init__(self, task):
        self.task = task

    def reset(self, seed):
        self.left = self.length = 2 + seed % 7
        return np.array([self.length], dtype=np.float32)

    def step(self, action):
        self.left -= 1
        return np.array([self.left], dtype=np.float32), float(action), self.left == 0, False

    def close(self):
        self.task.closed += 1


class Half:
    """Action 1 where the draw is below the half; always, at temperature 0."""

    def __init__(self):
        self.asked = []

    def act(self, observation, uniform, temperature):
        self.asked.append(len(observation))
        return (uniform < 0.5).long() if temperature else torch.ones(len(observation)), None


def test_every_environment_gives_one_episode_whatever_its_length():
    task, policy = Walk(), Half()
    found = episodes(policy, task, 12, temperature=0.0)
    lengths = [2 + one.seed % 7 for one in found]
    assert [one.steps for one in found] == [min(n, 6) for n in lengths]
    assert [one.total for one in found] == [one.steps for one in found]
    assert [one.finished for one in found] == [n <= 6 for n in lengths]
    assert {True, False} == {one.finished for one in found}
    assert sum(policy.asked) == sum(one.steps for one in found), "no step after an end"
    assert task.closed == 12


def test_an_episode_depends_on_seed_and_number_alone():
    few, many = (episodes(Half(), Walk(), n, temperature=1.0, seed=5) for n in (3, 9))
    assert few == many[:3]
    other = episodes(Half(), Walk(), 9, temperature=1.0, seed=6)
    assert [one.seed for one in other] != [one.seed for one in many]
    share = sum(one.total for one in many) / sum(one.steps for one in many)
    assert 0.2 < share < 0.8, "the draws are uniform numbers"


def test_the_mean_return_is_gymnasiums():
    policy, task = CategoricalPolicy(4, 2, seed=1), GymTask("CartPole-v1")
    (found,) = episodes(policy, task, 1, temperature=0.0, seed=2)
    env = task.make()
    seen, total, over = env.reset(found.seed), 0.0, False
    while not over:
        action = int(policy.module(torch.from_numpy(seen)[None]).argmax())
        seen, reward, ended, cut = env.step(action)
        total, over = total + reward, ended or cut
    assert found.total == pytest.approx(total)
    assert found.finished
