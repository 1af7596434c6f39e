"""`Request`: what a sampling piece asks a rollout for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """How many trajectories are wanted, and under which random stream.

    Parameters
    ----------
    prompts : number of prompts (language), environment streams (control), conditions (generator).
    samples : trajectories for each prompt: the group size G.
    horizon : most steps of a trajectory: completion tokens, or environment steps of a fragment.
    start : how many prompts this run asked for before; rollouts continue there in the task's order.
    temperature : of the sampled distribution; 0 is greedy.
    seed, version : the run's seed, and the policy's version (the iteration), which key the stream.
    stream : name of the random stream, so that two rollouts of the same prompts are independent.
    policy : name of the reference that samples; empty for the policy itself.
    texts : whether the text of every single token is wanted, in the table of `traj`.
    hints : prompt (row of the training set) → text that is added at the end of its question.
    tags : columns that every step of these trajectories gets.
    state : named state of the pieces, to be read by those that ask.
    """

    prompts: int
    samples: int = 1
    horizon: int = 1
    start: int = 0
    temperature: float = 1.0
    seed: int = 0
    version: int = 0
    stream: str = "sample"
    policy: str = ""
    texts: bool = False
    hints: Mapping[int, str] = field(default_factory=dict)
    tags: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
