"""Gymnasium environments as control tasks."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from anypo.core.errors import UsageError, nearest

DEFAULT_HORIZON = 1000
"""Steps of a stream per iteration where an environment names no time limit."""


class GymTask:
    """A registered Gymnasium environment with discrete actions; observations are flattened.

    Parameters
    ----------
    env_id : registered name, for example `CartPole-v1`.
    options : keyword arguments of the environment.

    `observation_size` and `action_count` are the sizes a policy needs; `horizon` is the
    environment's time limit, the steps of a stream that contain a whole episode.
    Raises `UsageError` for an unknown environment, a missing dependency, options it does not
    take, and spaces that are not supported.
    """

    kind = "control"

    def __init__(self, env_id: str, **options: Any) -> None:
        self.name, self.options = env_id, options
        env = _make(env_id, options)
        action, observation = env.action_space, env.observation_space
        limit = env.spec.max_episode_steps if env.spec else None
        env.close()
        if not isinstance(action, spaces.Discrete):
            raise UsageError(
                f"{env_id} has {type(action).__name__} actions, and only Discrete ones are "
                "supported so far; choose such an environment, for example CartPole-v1"
            )
        if not observation.is_np_flattenable:
            raise UsageError(
                f"{env_id} has {type(observation).__name__} observations, which do not flatten to "
                "a vector; choose an environment with Box, Discrete, MultiDiscrete or MultiBinary "
                "observations, or Tuple or Dict of these"
            )
        self.observation_size: int = spaces.flatdim(observation)
        self.action_count = int(action.n)
        self.horizon: int = limit or DEFAULT_HORIZON

    def settings(self) -> dict[str, Any]:
        """What the run's record says of this task."""
        return {"kind": self.kind, "name": self.name, "options": self.options}

    def make(self) -> GymEnvironment:
        """A fresh environment, not yet reset."""
        return GymEnvironment(_make(self.name, self.options))


class GymEnvironment:
    """An environment whose observations are float32 vectors and whose actions count from 0."""

    def __init__(self, env: gymnasium.Env) -> None:
        self.env = env
        self.space = env.observation_space
        assert isinstance(env.action_space, spaces.Discrete)
        self.first_action = int(env.action_space.start)

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; the seed decides everything that is random in it."""
        return self._vector(self.env.reset(seed=seed)[0])

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """The observation after the step (before any reset), reward, terminated, truncated."""
        after, reward, terminated, truncated, _ = self.env.step(self.first_action + action)
        return self._vector(after), float(reward), bool(terminated), bool(truncated)

    def close(self) -> None:
        """Release what the environment holds."""
        self.env.close()

    def _vector(self, observation: Any) -> np.ndarray:
        return np.array(spaces.flatten(self.space, observation), dtype=np.float32)


def _make(env_id: str, options: dict[str, Any]) -> gymnasium.Env:
    """`gymnasium.make`, with its errors as sentences that name the cure."""
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **options)
    except gymnasium.error.UnregisteredEnv as error:
        near = nearest(env_id, gymnasium.registry)
        raise UsageError(f"no environment is called {env_id!r}{near} ({error})") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise UsageError(f"the environment {env_id} cannot be made: {error}") from error
    except TypeError as error:
        raise UsageError(
            f"the environment {env_id} does not take the options {options}: {error}"
        ) from error
