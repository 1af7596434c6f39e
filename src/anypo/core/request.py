"""`Request`: what a sampling piece asks a rollout for."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    prompts: int
    samples: int = 1
    horizon: int = 1
    start: int = 0
    temperature: float = 1.0
    seed: int = 0
    version: int = 0
