"""`State`: everything that an update changes and a checkpoint must keep."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from anypo.core.batch import Batch
from anypo.core.recipe import Recipe
from anypo.core.rng import key
from anypo.engine.settings import Settings


def origin(policy: Any) -> dict[str, Tensor] | None:
    """A reference to the policy as it starts: under a fresh adapter, the adapter switched off."""
    fresh = getattr(policy, "lora", 0) and not getattr(policy, "warm", False)
    return None if fresh else policy.snapshot()


@dataclass
class State:
    """The policy, the heads that pieces own, optimizers, references, and counters.

    `step` counts finished iterations, `cursor` the prompts asked for, `idle` the iterations in a
    row without a gradient, `tokens` the steps sampled. `references` are snapshots of the trainable
    parameters by name; `None` is the adapter switched off. `ended` says why a run ended early.
    """

    recipe: Recipe
    policy: Any
    settings: Settings
    heads: nn.ModuleDict
    optimizers: list[torch.optim.Optimizer]
    references: dict[str, dict[str, Tensor] | None] = field(default_factory=dict)
    refreshed: set[str] = field(default_factory=set)
    pieces: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    cursor: int = 0
    idle: int = 0
    tokens: int = 0
    ended: str = ""

    @classmethod
    def start(cls, recipe: Recipe, policy: Any, settings: Settings) -> State:
        """The state before the first iteration."""
        policy.temperature = settings.temperature
        heads = nn.ModuleDict()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key(settings.seed, "heads") % 2**31)
            for name, outputs in recipe.modules().items():
                heads[name] = policy.head(outputs)
        state = cls(recipe, policy, settings, heads, [])
        state.optimizers = [
            recipe.update.optimizer(state.parameters(i), state.lr)
            for i in range(len(recipe.objectives))
        ]
        state.references = {name: origin(policy) for name in recipe.references}
        state.pieces = {k: v for p in recipe.pieces for k, v in p.init().items()}
        return state

    @property
    def lr(self) -> float:
        """The run's learning rate, or the policy's own."""
        return self.settings.lr or self.policy.lr

    def parameters(self, objective: int) -> list[nn.Parameter]:
        """What an objective optimises: the first the policy and its heads, others their heads."""
        pieces = self.recipe.objectives[objective].pieces
        names = {n for p in pieces for n in p.modules()}
        if objective == 0:
            other = {n for o in self.recipe.also for p in o.pieces for n in p.modules()}
            names |= set(self.heads) - other
        heads = [p for n in sorted(names) for p in self.heads[n].parameters()]
        own = [p for p in self.policy.module.parameters() if p.requires_grad]
        return (own if objective == 0 else []) + heads

    def refresh(self, names: tuple[str, ...]) -> None:
        """Take some references afresh from the policy as it is now."""
        for name in names:
            self.references[name] = self.policy.snapshot()
            self.refreshed.add(name)

    def reference(self, name: str) -> AbstractContextManager[None]:
        """The policy computes as the named reference inside this context."""
        return self.policy.using(self.references[name])

    def reference_bytes(self) -> int:
        """Memory that the references hold, in bytes."""
        held = [t for r in self.references.values() if r for t in r.values()]
        return sum(t.numel() * t.element_size() for t in held)

    def observe(self, batch: Batch) -> None:
        """Let every piece that keeps state see the batch of a finished update."""
        for piece in self.recipe.pieces:
            self.pieces = piece.observe(batch, self.pieces)
