"""Gymnasium environments as tasks: sizes, seeds, ends of episodes, and refusals."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from anypo.backends.gymnasium import GymTask
from anypo.core.errors import UsageError


class Echo(gymnasium.Env):
    """Observes the last action; actions are 5, 6, 7."""

    observation_space = spaces.Dict({"last": spaces.Box(0, 10, (1, 1)), "sign": spaces.Discrete(2)})
    action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"last": np.zeros((1, 1)), "sign": 0}, {}

    def step(self, action):
        return {"last": np.full((1, 1), action), "sign": 1}, action, False, False, {}


class NeedsLibrary(Echo):
    def __init__(self):
        raise gymnasium.error.DependencyNotInstalled('run `pip install "gymnasium[box2d]"`')


class Unbounded(Echo):
    observation_space = spaces.Sequence(spaces.Discrete(2))


@pytest.fixture(autouse=True, scope="module")
def registered():
    own = {"AnypoEcho-v0": Echo, "AnypoNeeds-v0": NeedsLibrary, "AnypoLong-v0": Unbounded}
    for name, entry in own.items():
        gymnasium.register(name, entry_point=entry, max_episode_steps=4)
    yield
    for name in own:
        del gymnasium.registry[name]


def test_sizes_and_horizon_are_the_environments():
    task = GymTask("CartPole-v1")
    assert (task.kind, task.name) == ("control", "CartPole-v1")
    assert (task.observation_size, task.action_count, task.horizon) == (4, 2, 500)
    lake = GymTask("FrozenLake-v1", is_slippery=False)
    assert (lake.observation_size, lake.action_count) == (16, 4)
    assert lake.make().reset(0).tolist() == [1.0] + [0.0] * 15


def test_the_record_tells_tasks_apart():
    records = [GymTask("FrozenLake-v1", is_slippery=s).settings() for s in (False, True)]
    assert records[0] == {
        "kind": "control",
        "name": "FrozenLake-v1",
        "options": {"is_slippery": False},
    }
    assert records[0] != records[1]


def test_options_reach_the_environment():
    """Without slipping, right, right, down, down, down, right is the way over the frozen lake."""
    env = GymTask("FrozenLake-v1", is_slippery=False).make()
    env.reset(0)
    *_, last = [env.step(a) for a in (2, 2, 1, 1, 1, 2)]
    assert last[1:] == (1.0, True, False)


def test_observations_are_flat_vectors_and_actions_count_from_zero():
    task = GymTask("AnypoEcho-v0")
    assert (task.observation_size, task.action_count, task.horizon) == (3, 3, 4)
    env = task.make()
    first = env.reset(0)
    assert first.dtype == np.float32
    assert first.tolist() == [0, 1, 0]
    after, reward, terminated, truncated = env.step(2)
    assert after.tolist() == [7, 0, 1]
    assert (reward, terminated, truncated) == (7.0, False, False)


def test_a_time_limit_truncates_and_shows_the_final_observation():
    env = GymTask("AnypoEcho-v0").make()
    env.reset(0)
    ends = [env.step(a) for a in (0, 1, 2, 1)]
    assert [(end[2], end[3]) for end in ends] == [(False, False)] * 3 + [(False, True)]
    assert ends[-1][0].tolist() == [6, 0, 1]


def test_the_seed_decides_the_episode():
    task = GymTask("CartPole-v1")
    env, other = task.make(), task.make()
    first = env.reset(2**62 + 1)
    path = [env.step(1)[0].tolist() for _ in range(5)]
    assert other.reset(2**62 + 2).tolist() != first.tolist()
    assert other.reset(2**62 + 1).tolist() == first.tolist()
    assert [other.step(1)[0].tolist() for _ in range(5)] == path


def test_observations_are_copies():
    """Some environments return their own state array; a recorded observation must not follow it."""
    env = GymTask("CartPole-v1").make()
    first = env.reset(1)
    kept = first.copy()
    env.step(0)
    assert first.tolist() == kept.tolist()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cartpole-v1", {}, "no environment is called 'cartpole-v1'; did you mean CartPole-v1"),
        ("Pendulum-v1", {}, "Pendulum-v1 has Box actions, and only Discrete"),
        ("CartPole-v1", {"gravty": 9}, "does not take the options {'gravty': 9}"),
        ("AnypoNeeds-v0", {}, r"cannot be made: run `pip install \"gymnasium\[box2d\]\"`"),
        ("AnypoLong-v0", {}, "Sequence observations, which do not flatten"),
        ("no_such_module:Env-v0", {}, "cannot be made: .*no_such_module"),
        ("not an id", {}, "cannot be made: Malformed"),
    ],
)
def test_refusals_name_the_cure(name, options, message):
    with pytest.raises(UsageError, match=message):
        GymTask(name, **options)
