"""Worlds small enough to list everything that can happen: two bandits with prompts, and a chain.

A world is some prompts, each with all of its trajectories. A policy is a table of logits, one row
for each state. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.rng import generator


@dataclass(frozen=True)
class Trajectory:
    """States in which tokens are chosen, the tokens, their rewards and turns, and chance's part."""

    states: tuple[int, ...]
    tokens: tuple[int, ...]
    rewards: tuple[float, ...]
    turns: tuple[int, ...]
    chance: float = 1.0

    @property
    def outcome(self) -> float:
        """The sum of the rewards."""
        return sum(self.rewards)


@dataclass(frozen=True)
class World:
    """All trajectories of every prompt, and how often each prompt is drawn."""

    prompts: tuple[tuple[Trajectory, ...], ...]
    weights: tuple[float, ...]
    states: int
    choices: int

    def table(self, seed: int, spread: float = 0.7) -> Tensor:
        """Random logits `[states, choices]`."""
        rng = generator(seed, "table")
        return spread * torch.randn(self.states, self.choices, generator=rng, dtype=torch.float64)

    def outcomes(self, prompt: int) -> Tensor:
        """The outcome of each trajectory of a prompt, `[K]`."""
        return torch.tensor([t.outcome for t in self.prompts[prompt]], dtype=torch.float64)

    def lengths(self, prompt: int) -> Tensor:
        """Steps of each trajectory of a prompt, `[K]`."""
        return torch.tensor([len(t.tokens) for t in self.prompts[prompt]], dtype=torch.float64)

    def logp(self, table: Tensor, prompt: int) -> Tensor:
        """Log-probability of the tokens of each trajectory, `[K]`, differentiable."""
        rows = torch.log_softmax(table, -1)
        return torch.stack(
            [rows[list(t.states), list(t.tokens)].sum() for t in self.prompts[prompt]]
        )

    def probabilities(self, table: Tensor, prompt: int) -> Tensor:
        """Probability of each trajectory of a prompt, chance included, `[K]`, differentiable."""
        chance = torch.tensor([t.chance for t in self.prompts[prompt]], dtype=torch.float64)
        return chance * self.logp(table, prompt).exp()

    def mean(self, table: Tensor, values: Callable[[int], Tensor]) -> Tensor:
        """`Σ_x weight_x Σ_y π(y|x) values(x)_y`: an expectation over trajectories."""
        per_prompt = [(self.probabilities(table, x) * values(x)).sum() for x in self]
        return torch.stack([w * m for w, m in zip(self.weights, per_prompt)]).sum()

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.prompts)))

    def values(self, table: Tensor) -> Tensor:
        """`V(s)`: the expected reward to go from each state, `[states]`, without gradient."""
        found, mass = torch.zeros(self.states).double(), torch.zeros(self.states).double()
        for x in self:
            for t, p in zip(self.prompts[x], self.probabilities(table.detach(), x)):
                for n, s in enumerate(t.states):
                    found[s] += p * sum(t.rewards[n:])
                    mass[s] += p
        return found / mass

    def greedy(self, table: Tensor, prompt: int) -> int:
        """The trajectory whose tokens are the likeliest in each of their states."""
        best = table.argmax(-1)
        agree = [
            all(best[s] == a for s, a in zip(t.states, t.tokens)) for t in self.prompts[prompt]
        ]
        return agree.index(True)

    def batch(self, picks: list[tuple[int, tuple[int, ...]]], labels: Any = None) -> Batch:
        """One group for each `(prompt, trajectories)`; `labels` replaces a group's outcomes."""
        flat = [(g, x, self.prompts[x][k]) for g, (x, ks) in enumerate(picks) for k in ks]
        if labels is not None:
            flat = [(g, x, _labelled(t, r)) for (g, x, t), r in zip(flat, labels)]
        longest = max(len(t.tokens) for ts in self.prompts for t in ts)
        ids: dict[str, list[int]] = {k: [] for k in IDS}
        turns = 0
        for i, (g, x, t) in enumerate(flat):
            for n, turn in enumerate(t.turns):
                row = (i, i, g, x, n, turns + turn, turns + turn, turn, 0)
                for name, value in zip(IDS, row):
                    ids[name].append(value)
            turns += 1 + t.turns[-1]
        padded = [[(*t.states, *[0] * (longest - len(t.states))) for _, _, t in flat]]
        padded.append([(*t.tokens, *[0] * (longest - len(t.tokens))) for _, _, t in flat])
        done = torch.ones(len(flat), dtype=torch.bool)
        table = {"terminated": done, "truncated": ~done, "horizon": torch.full(done.shape, longest)}
        return Batch(
            {
                "reward": torch.tensor(
                    [r for _, _, t in flat for r in t.rewards], dtype=torch.float64
                )
            },
            {k: torch.tensor(v) for k, v in ids.items()},
            {"traj": table},
            {"state": torch.tensor(padded[0]), "token": torch.tensor(padded[1])},
        )


IDS = ("traj", "seq", "group", "prompt", "position", "turn", "segment", "stage", "version")


def _labelled(t: Trajectory, outcome: float) -> Trajectory:
    return replace(t, rewards=(*[0.0] * (len(t.rewards) - 1), outcome))


def arms(rewards=((1.0, 0.2, -0.5), (0.0, 1.0, 0.6)), weights=(0.4, 0.6)) -> World:
    """A bandit of one-token answers: every prompt is one state with as many choices as rewards."""
    prompts = tuple(
        tuple(Trajectory((x,), (a,), (r,), (0,)) for a, r in enumerate(row))
        for x, row in enumerate(rewards)
    )
    return World(prompts, tuple(weights), len(rewards), len(rewards[0]))


def answers(rewards=((1.0, 0.2, -0.5), (0.0, 1.0, 0.6)), weights=(0.4, 0.6)) -> World:
    """A bandit of three answers of lengths 1, 2, 2: the tokens (0), (1, 0), (1, 1)."""
    prompts = []
    for x, (short, left, right) in enumerate(rewards):
        first, second = 2 * x, 2 * x + 1
        prompts.append(
            (
                Trajectory((first,), (0,), (short,), (0,)),
                Trajectory((first, second), (1, 0), (0.0, left), (0, 0)),
                Trajectory((first, second), (1, 1), (0.0, right), (0, 0)),
            )
        )
    return World(tuple(prompts), tuple(weights), 2 * len(rewards), 2)


def chain(luck: float = 0.3) -> World:
    """A chain of two or three turns with rewards at turns and one move of chance.

    Turn 0 is the token 0, or 1 and another one; then chance moves left (`luck`) or right; turn 1 is
    one token; after a 1, turn 2 is one more. 18 trajectories of 2 to 4 steps; 8 states.
    """
    found = []
    for opening in ((0,), (1, 0), (1, 1)):
        for side, chance in enumerate((luck, 1 - luck)):
            for ending in ((0,), (1, 0), (1, 1)):
                middle, late = 2 + 3 * side + (opening == (0,)), 4 + 3 * side
                states = (*(0, 1)[: len(opening)], *(middle, late)[: len(ending)])
                first = 0.5 * opening[0] - 0.7 * (opening == (1, 1))
                rewards = [0.0] * (len(opening) - 1) + [first, 0.3 * side - 0.4 * ending[0]]
                rewards += [ending[-1] * (1.5 - 2 * side) + 0.2] * (len(ending) - 1)
                turns = (*[0] * len(opening), *range(1, 1 + len(ending)))
                tokens = (*opening, *ending)
                found.append(Trajectory(states, tokens, tuple(rewards), turns, chance))
    return World((tuple(found),), (1.0,), 8, 2)


def slope(value: Callable[[Tensor], Tensor], table: Tensor) -> Tensor:
    """The exact gradient of a function of the table."""
    leaf = table.clone().requires_grad_()
    (found,) = torch.autograd.grad(value(leaf), leaf)
    return found


def gain(world: World, table: Tensor) -> Tensor:
    """`∇E[R]` under the table's policy, prompts by the world's weights."""
    return slope(lambda leaf: world.mean(leaf, world.outcomes), table)


def close(found: Tensor, expected: Tensor) -> None:
    """Equal to rounding."""
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
