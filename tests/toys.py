"""A float64 policy small enough for exact comparisons, and batches of every shape for it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import anypo.recipes
from anypo.core import discover
from anypo.core.batch import Batch
from anypo.core.recipe import Recipe
from anypo.core.rng import generator
from anypo.engine.dry import invented
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.policies.swap import snapshot, swapped

WIDTH, CHOICES = 5, 4
FACTS = sorted({f for m in discover.methods(anypo.recipes).values() for f in m().facts})


class ToyPolicy:
    """`logp` of a recorded choice under a softmax of a tanh network of the step's features.

    A sequence is one row of features per step, so a trajectory is one `seq` as for a language
    model, and padding can be put behind it without changing anything.
    """

    kind, name, lr, lora, temperature = "language", "toy", 0.05, 0, 1.0
    offers = frozenset({"logp", "entropy", "value", "value_next", "mean"})

    def __init__(self, seed: int = 0, padding: int = 0) -> None:
        self.padding = padding
        self.module: nn.Module = nn.Sequential(
            nn.Linear(WIDTH, 7), nn.Tanh(), nn.Linear(7, CHOICES)
        ).double()
        with torch.no_grad():
            for p in self.module.parameters():
                p.copy_(torch.randn(p.shape, generator=generator(seed, "toy", p.numel())).double())

    def head(self, outputs: int) -> nn.Module:
        """A linear head on the features."""
        return nn.Linear(WIDTH, outputs).double()

    def columns(
        self, batch: Batch, needs: frozenset[str], heads: Mapping[str, nn.Module]
    ) -> dict[str, Tensor]:
        """All columns from padded rows, read back at the steps."""
        rows = batch.inputs["features"]
        longest = max(len(r) for r in rows) + self.padding
        padded = torch.stack([nn.functional.pad(r, (0, 0, 0, longest - len(r))) for r in rows])
        seq, position = batch.ids["seq"], batch.ids["position"]
        logits = self.module(padded)[seq, position]
        logp = torch.log_softmax(logits, -1)
        choice = torch.stack([c for r in batch.inputs["choice"] for c in r])
        order = torch.cat(
            [torch.tensor([[i, t] for t in range(len(r))]) for i, r in enumerate(rows)]
        )
        flat = torch.full((len(rows), longest), 0)
        flat[order[:, 0], order[:, 1]] = choice
        out = {
            "logp": logp.gather(-1, flat[seq, position][:, None])[:, 0],
            "entropy": -(logp.exp() * logp).sum(-1),
            "mean": logits[:, :2],
        }
        for name, head in heads.items():
            out[name] = head(padded)[seq, position][:, 0]
        if "value" in heads:
            out["value_next"] = batch.next(out["value"], within="traj")
        return {k: v for k, v in out.items() if k in needs}

    def costs(self, batch: Batch) -> list[int]:
        """The steps of every sequence."""
        return [len(r) for r in batch.inputs["features"]]

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the weights."""
        return snapshot(self.module)

    def using(self, weights: Mapping[str, Tensor] | None) -> Any:
        """Under a snapshot."""
        return swapped(self.module, weights) if weights else nullcontext()

    def publish(self) -> None:
        """Nothing to do."""


def toy_batch(
    lengths: list[list[int]], seed: int = 0, outcomes: list[list[float]] | None = None
) -> Batch:
    """Groups of trajectories of the given lengths, with random features, choices and rewards."""
    rng = generator(seed, "batch")
    flat = [(g, n) for g, group in enumerate(lengths) for n in group]
    if outcomes is None:
        outcomes = [[float(torch.rand((), generator=rng)) for _ in group] for group in lengths]
        for g, group in enumerate(outcomes):  # one that is quite right, or one that is quite wrong
            group[0] = 1.0 if g % 2 == 0 else 0.0
    rewards = [r for group in outcomes for r in group]
    ids: dict[str, list[int]] = {k: [] for k in ("traj", "seq", "group", "position", "prompt")}
    reward: list[float] = []
    features, choice = [], []
    for i, (g, n) in enumerate(flat):
        for t in range(n):
            ids["traj"].append(i)
            ids["seq"].append(i)
            ids["group"].append(g)
            ids["prompt"].append(g)
            ids["position"].append(t)
            reward.append(rewards[i] if t == n - 1 else 0.0)
        features.append(torch.randn(n, WIDTH, generator=rng).double())
        choice.append([torch.randint(CHOICES, (), generator=rng) for _ in range(n)])
    steps = len(reward)
    columns = {
        "reward": torch.tensor(reward, dtype=torch.float64),
        "std": torch.full((steps,), 0.5, dtype=torch.float64),
    }
    for name in ("lot", "score_norm", "greedy", "reference", "v_star"):
        columns[name] = torch.rand(steps, generator=generator(seed, name), dtype=torch.float64)
    traj, group = torch.tensor(ids["traj"]), torch.tensor(ids["group"])
    for name in ("score_norm", "greedy", "reference", "v_star"):  # one number per trajectory
        columns[name] = columns[name][: len(flat)][traj]
    columns["control"] = (group % 2).double()
    half = torch.tensor([2 * t >= n for _, n in flat for t in range(n)]).long()
    segment = torch.unique(2 * traj + half, return_inverse=True)[1]
    table = {
        "horizon": torch.full((len(flat),), 9),
        "terminated": torch.ones(len(flat), dtype=torch.bool),
        "truncated": torch.zeros(len(flat), dtype=torch.bool),
        **invented(FACTS, len(flat)),
    }
    batch = Batch(
        columns,
        {k: torch.tensor(v) for k, v in ids.items()} | {"segment": segment, "stage": half},
        {"traj": table},
        {
            "features": features,
            "choice": choice,
            "tokens": [torch.stack(c) for c in choice],
        },
    )
    logp = ToyPolicy(seed=100).columns(batch, frozenset({"logp"}), {})["logp"].detach()
    return batch.with_({"logp_mu": logp})


def toy_state(recipe: Recipe, policy: Any, budget: int = 10_000, **settings: Any) -> State:
    """A started state whose reference and critic differ from zero and from the policy."""
    state = State.start(recipe, policy, Settings(token_budget=budget, **settings))
    for name in state.references:
        state.references[name] = ToyPolicy(seed=7).snapshot()
    for i, p in enumerate(state.heads.parameters()):
        p.data = torch.randn(p.shape, generator=generator(3, "heads", i)).double()
    return state
