"""Expectations by enumeration: every batch that could be drawn, on the engine's own path.

Each batch goes through collect, frozen columns, credit and weights as in training, and counts with
its probability. Nothing is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from anypo.core.batch import Batch, concat
from anypo.core.recipe import Recipe
from anypo.core.request import Request
from anypo.engine.collect import collect, credit
from anypo.engine.columns import add_frozen
from anypo.engine.problem import weigh
from anypo.engine.settings import Settings
from anypo.engine.state import State
from anypo.policies.swap import snapshot, swapped
from tests.oracle.world import World


class Rows(nn.Module):
    """A table `[states, outputs]`, looked up by state."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows.clone())

    def forward(self, state: Tensor) -> Tensor:
        """The rows of some states."""
        return self.rows[state]


class Tabular:
    """A softmax policy with one row of logits for each state."""

    kind, name, lr, lora, temperature = "language", "table", 0.05, 0, 1.0
    offers = frozenset({"logp", "entropy", "value", "value_next", "log_z"})

    def __init__(self, table: Tensor) -> None:
        self.module = Rows(table)

    def head(self, outputs: int) -> nn.Module:
        """A table of its own, with every entry 0."""
        return Rows(torch.zeros(len(self.module.rows), outputs).double())

    def columns(
        self, batch: Batch, needs: frozenset[str], heads: Mapping[str, nn.Module]
    ) -> dict[str, Tensor]:
        """Everything that the table and the heads say of each step."""
        seq, position = batch.ids["seq"], batch.ids["position"]
        state = batch.inputs["state"][seq, position]
        token = batch.inputs["token"][seq, position]
        rows = torch.log_softmax(self.module(state), -1)
        out = {
            "logp": rows.gather(-1, token[:, None])[:, 0],
            "entropy": -(rows.exp() * rows).sum(-1),
        }
        for name, head in heads.items():
            out[name] = head(state if name == "value" else batch.inputs["state"][seq, 0])[:, 0]
        if "value" in heads:
            out["value_next"] = batch.next(out["value"], within="traj")
        return {k: v for k, v in out.items() if k in needs}

    def costs(self, batch: Batch) -> list[int]:
        """One for each trajectory."""
        return [1] * batch.count("seq")

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the table."""
        return snapshot(self.module)

    def using(self, weights: Mapping[str, Tensor]) -> Any:
        """Under another table."""
        return swapped(self.module, weights)

    def publish(self) -> None:
        """Nothing to do."""


@dataclass
class Listed:
    """A backend whose rollout is one given batch; `probed` answers the rollouts beside it."""

    drawn: Batch
    probed: Callable[[Request], Batch] | None = None
    rank = 0
    world = 1

    def rollout(self, request: Request, state: State) -> Batch:
        """The batch, whatever is asked."""
        if request.stream == "sample":
            return self.drawn
        assert self.probed is not None, f"no answers for the probe {request.stream!r}"
        return self.probed(request)

    def sum_(self, tensors: list[Tensor]) -> None:
        """One rank: nothing to add."""


Labels = Callable[[int, tuple[int, ...]], list[tuple[float, tuple[float, ...]]]]


class Expectation:
    """The expected loss of a recipe over every batch that could have been drawn.

    Parameters
    ----------
    recipe, world : what is compared, and where.
    table : the current policy, kept as the trainable `parameter`.
    mu : the policy that samples, and that `logp_old` and `logp_mu` belong to (default `table`).
    old : the policy at the start of the update, where it is not the one that sampled.
    ref : the reference, or one for each name (default: random).
    group : trajectories per prompt (default: the recipe's).
    joint : whether a batch has a group of every prompt; else it has one group, of a prompt drawn by
        the world's weights.
    heads : name → rows `[states]` of a head (default 0).
    labels : `(prompt, trajectories) → [(probability, outcomes)]`: a judge at random.
    probed : answers of rollouts beside the batch: `(request, prompt) → trajectories`.
    chances : what may still become of a batch before its weights, with probabilities.
    """

    def __init__(
        self,
        recipe: Recipe,
        world: World,
        table: Tensor,
        *,
        mu: Tensor | None = None,
        old: Tensor | None = None,
        ref: Tensor | Mapping[str, Tensor] | None = None,
        group: int = 0,
        joint: bool = False,
        heads: Mapping[str, Tensor] | None = None,
        labels: Labels | None = None,
        probed: Callable[[Request, int], tuple[int, ...]] | None = None,
        chances: Callable[[Batch], list[tuple[float, Batch]]] = lambda batch: [(1.0, batch)],
    ) -> None:
        self.recipe, self.world, self.probed = recipe, world, probed
        self.mu = table if mu is None else mu
        self.old = self.mu if old is None else old
        self.policy = Tabular(self.old)  # as it was when the batch was collected
        self.state = State.start(recipe, self.policy, Settings(prompts=1))
        self.objective = recipe.objectives[0]
        ref = world.table(99) if ref is None else ref
        named = {k: ref if isinstance(ref, Tensor) else ref[k] for k in self.state.references}
        self.state.references = {k: {"rows": rows} for k, rows in named.items()}
        for name, rows in (heads or {}).items():
            self.state.heads[name].rows.data = rows.clone().reshape(-1, 1)
        every = self._batches(group or recipe.sampling.group, joint, labels)
        self.drawn = [(p * q, b) for p, drawn in every for q, b in chances(self.ready(drawn))]
        self.parameter.data = table.clone()
        self.total = sum(p for p, _ in self.drawn)
        weighed = [self._weighed(p, batch) for p, batch in self.drawn if len(batch)]
        # Coupled units are never cut, so batches whose terms do not see each other can be joined.
        whole = self.objective.couples != "batch"
        self.parts = [concat(weighed)] if whole else weighed

    @property
    def parameter(self) -> nn.Parameter:
        """The table that is trained."""
        return self.policy.module.rows

    def _batches(
        self, group: int, joint: bool, labels: Labels | None
    ) -> Iterator[tuple[float, Batch]]:
        world = self.world
        mu = [world.probabilities(self.mu, x).tolist() for x in world]
        groups = [
            [(x, ks) for ks in product(range(len(world.prompts[x])), repeat=group)] for x in world
        ]
        chosen = product(*groups) if joint else [(g,) for some in groups for g in some]
        for picks in chosen:
            p = 1.0 if joint else world.weights[picks[0][0]]
            for x, ks in picks:
                for k in ks:
                    p *= mu[x][k]
            if labels is None:
                yield p, world.batch(list(picks))
                continue
            for share, outcomes in labels(*picks[0]):
                yield p * share, world.batch(list(picks), outcomes)

    def ready(self, drawn: Batch) -> Batch:
        """The update batch with its weights, by the path that training takes."""
        recipe, state, policy = self.recipe, self.state, self.policy
        with policy.using({"rows": self.mu}), torch.no_grad():
            logp_mu = policy.columns(drawn, frozenset({"logp"}), {})["logp"]
        backend = Listed(drawn.with_({"logp_mu": logp_mu}), self._probe(drawn))
        batch, _ = collect(recipe, backend, state)
        batch = add_frozen(batch, recipe.frozen_needs | {"logp_old"}, state, backend)
        return recipe.sampling.thin(credit(recipe, batch)) if len(batch) else batch

    def _weighed(self, p: float, batch: Batch) -> Batch:
        batch = weigh(self.objective, batch)
        return batch.with_({"weight": p * batch["weight"]})

    def _probe(self, drawn: Batch) -> Callable[[Request], Batch] | None:
        if self.probed is None:
            return None
        prompts = list(dict.fromkeys(drawn.ids["prompt"].tolist()))
        return lambda request: self.world.batch([(x, self.probed(request, x)) for x in prompts])

    def loss(self) -> Tensor:
        """The expected loss under the current table, differentiable."""
        terms = []
        for part in self.parts:
            live = self.objective.live
            columns = self.objective.likelihood(self.policy, part, live, self.state.heads)
            terms.append(self.objective.loss(part.with_(columns)))
        return torch.stack(terms).sum()

    def gradient(self, head: str = "") -> Tensor:
        """The expected gradient for the table, or for a head: `[states, choices]` or `[states]`."""
        wanted = self.state.heads[head].rows if head else self.parameter
        (found,) = torch.autograd.grad(self.loss(), wanted, allow_unused=True)
        found = torch.zeros_like(wanted) if found is None else found
        return found[:, 0] if head else found

    def minimise(self, rounds: int = 200) -> Tensor:
        """The table that minimises the expected loss, by L-BFGS over the table and the heads."""
        wanted = [self.parameter, *self.state.heads.parameters()]
        search = torch.optim.LBFGS(
            wanted, 1.0, rounds, 2 * rounds, 1e-13, 0.0, 20, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            search.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss

        search.step(closure)
        return self.parameter.detach()
