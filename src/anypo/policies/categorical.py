"""`CategoricalPolicy`: a small network over discrete actions, with a separate critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anypo.core.batch import Batch
from anypo.core.rng import generator
from anypo.policies.networks import mlp
from anypo.policies.small import SmallPolicy


class DiscreteTask(Protocol):
    """What the policy must know of its task."""

    observation_size: int
    action_count: int


class CategoricalPolicy(SmallPolicy):
    """`π(a|s) = softmax(f(s)/T)[a]` with `f` a tanh network; actions are `0 … action_count − 1`.

    Reads the batch inputs `observation`, `next_observation` (after the step, before any reset),
    `action` and `terminal`, one row per `seq`; every column of a step depends on its own row
    alone, so any split of a batch gives the same columns.

    Parameters
    ----------
    observation_size, action_count : features of an observation, number of actions.
    hidden : units of each of the two hidden layers (64, as in CleanRL).
    lr : learning rate for Adam, 2.5e-3: ten times CleanRL's, for few large minibatches.
    temperature : T of the sampled and scored distribution (1).
    seed : of the initial weights, and of the heads'.

    Reference: "The 37 Implementation Details of PPO": tanh 64×64, orthogonal weights with gain
    √2, 0.01 for the policy head and 1 for the critic, which shares nothing with the policy.
    """

    kind = "control"
    name = "categorical"
    recorded = "kind name observation_size action_count hidden temperature seed"
    offers = frozenset({"logp", "entropy", "value", "value_next"})

    def __init__(
        self,
        observation_size: int,
        action_count: int,
        *,
        hidden: int = 64,
        lr: float = 2.5e-3,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        self.observation_size, self.action_count = observation_size, action_count
        self.hidden, self.lr, self.temperature, self.seed = hidden, lr, temperature, seed
        self.module: nn.Module = self._network(action_count, 0.01, "policy")

    @classmethod
    def for_task(cls, task: DiscreteTask, **settings: Any) -> CategoricalPolicy:
        """A policy of the sizes of a task."""
        return cls(task.observation_size, task.action_count, **settings)

    def _network(self, outputs: int, last_gain: float, purpose: str) -> nn.Sequential:
        sizes = [self.observation_size, self.hidden, self.hidden, outputs]
        return mlp(sizes, nn.Tanh, last_gain, generator(self.seed, purpose, outputs))

    def head(self, outputs: int) -> nn.Module:
        """A separate network on the observation, for example a critic (`outputs` 1)."""
        return self._network(outputs, 1.0, "head")

    def _all_logp(self, observation: Tensor, temperature: float) -> Tensor:
        return torch.log_softmax(self.module(self._to(observation)) / temperature, -1)

    @torch.no_grad()
    def act(
        self, observation: Tensor, uniform: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Sample an action for each observation, and its log-probability; both `[E]`.

        `uniform[E]` in [0, 1) decides by inverting the cumulative distribution, so that a row
        depends on its own number alone. Temperature 0 takes the most likely action, with
        log-probability 0.
        """
        if temperature == 0:
            action = self._all_logp(observation, 1.0).argmax(-1)
            return action, torch.zeros(len(action))
        logp = self._all_logp(observation, temperature)
        below = logp.double().exp().cumsum(-1)
        action = (below <= (uniform.to(below) * below[:, -1])[:, None]).sum(-1)
        action = action.clamp(max=self.action_count - 1)
        return action, logp.gather(-1, action[:, None])[:, 0]

    def columns(
        self, batch: Batch, needs: frozenset[str], heads: Mapping[str, nn.Module]
    ) -> dict[str, Tensor]:
        """The named columns, each `[N]`.

        `logp` of the recorded action and `entropy` at the policy's temperature; `value`, like the
        column of every head, is the head's on the observation; `value_next` is the head's on the
        observation after the step (at a truncation that is the final observation), and 0 where the
        step terminated.
        """
        seq = batch.id("seq")
        rows = {name: x[seq] for name, x in batch.inputs.items()}
        out: dict[str, Tensor] = {}
        if needs & {"logp", "entropy"}:
            logp = self._all_logp(rows["observation"], self.temperature)
            out["logp"] = logp.gather(-1, rows["action"].to(logp.device)[:, None])[:, 0]
            out["entropy"] = -(logp.exp() * logp).sum(-1)
        for name in sorted(needs & set(heads)):
            out[name] = heads[name](self._to(rows["observation"]))[:, 0]
        if "value_next" in needs:
            ahead = heads["value"](self._to(rows["next_observation"]))[:, 0]
            out["value_next"] = ahead.masked_fill(rows["terminal"].to(ahead.device), 0.0)
        return {name: x for name, x in out.items() if name in needs}
