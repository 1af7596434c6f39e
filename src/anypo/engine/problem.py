"""`Problem`: one objective on one update batch, with exact gradients whatever the split."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.clock import span
from anypo.core.piece import Aggregate
from anypo.core.recipe import Objective
from anypo.core.rng import generator
from anypo.engine.backend import Backend
from anypo.engine.columns import add_frozen, cuts, fill, gather, shares
from anypo.engine.metrics import update_metrics
from anypo.engine.state import State


def weigh(objective: Objective, batch: Batch) -> Batch:
    """The update batch with its weights, and only the steps that have one.

    Steps of weight 0 are taken out, not multiplied by it: a NaN in one of them cannot reach a loss
    or a gradient.
    """
    weighted = batch.with_({"weight": objective.aggregate(batch)})
    return weighted.take(weighted["weight"] != 0)


def alive(objective: Objective, batch: Batch) -> Tensor:
    """Steps that can have a gradient, bool `[N]`.

    A step with advantage 0 usually has none, and then its forward pass can be skipped. That is not
    declared but probed: the objective's own arithmetic is differentiated at random columns, and a
    step is alive if its advantage or any probed gradient is not 0. A penalty may act anywhere, so
    with one every step is alive.
    """
    everything = torch.ones(len(batch), dtype=torch.bool)
    if objective.regularize or "advantage" not in batch:
        return everything
    out = batch["advantage"] != 0
    rng = generator(0, "probe")
    base = batch["logp_mu"].double() if "logp_mu" in batch else -torch.ones(len(batch)).double()
    for spread in (0.1, 1.0, 5.0):
        noise = {c: torch.randn(len(batch), generator=rng).double() for c in sorted(objective.live)}
        leaves = {c: (base + spread * x).requires_grad_() for c, x in noise.items()}
        probed = batch.with_({**_old(objective, batch, base), **leaves})
        loss = objective.loss(probed)
        for grad in torch.autograd.grad(loss, list(leaves.values()), allow_unused=True):
            out = out | (grad != 0) if grad is not None else out
    return out


def _old(objective: Objective, batch: Batch, logp: Tensor) -> dict[str, Tensor]:
    """`logp_old` where nobody recorded it: the batch is seen under the weights that scored it."""
    wanted = any("logp_old" in p.needs for p in objective.pieces)
    return {"logp_old": logp} if wanted and "logp_old" not in batch else {}


@dataclass(frozen=True)
class _Given(Aggregate):
    """The weights that the steps have already."""

    def __call__(self, batch: Batch) -> Tensor:
        """The column `weight`."""
        return batch["weight"]


@dataclass
class Problem:
    """What an update rule works on: `accumulate` adds ∇loss to the parameters' gradients.

    When every coupled unit fits into a micro-batch, one pass suffices. Otherwise there are two: a
    pass without gradient gathers the columns, autograd on the columns alone gives ∂loss/∂column,
    and a second pass pushes that linear form through the network.

    `pull` collects `−∂loss/∂logp` of this rank by the column `row`, for people to look at.
    """

    objective: Objective
    batch: Batch
    state: State
    backend: Backend
    index: int = 0
    pull: Tensor | None = None

    def part(self, steps: Tensor) -> Problem:
        """The problem of some steps (bool `[N]`), with their weights in the whole.

        Gradients of parts that share no coupled unit add up to that of the whole.
        """
        weighted = self.batch.with_({"weight": self.objective.aggregate(self.batch)})
        objective = replace(self.objective, aggregate=_Given())
        return replace(self, objective=objective, batch=weighted.take(steps))

    def accumulate(self) -> dict[str, float]:
        """Add the gradient of the loss; returns metrics of the objective under current weights."""
        batch = weigh(self.objective, self.batch)
        batch = batch.take(self._computed(batch))
        if not len(batch):
            return {"loss": 0.0, "alive": 0.0}
        costs = self.state.policy.costs(batch)
        unit, whole = self._unit(batch, costs)
        parts = cuts(batch, unit, costs, self.state.settings.token_budget)
        batch = self._one_pass(batch, parts) if whole else self._two_passes(batch, parts)
        self._sum_gradients()
        share = len(batch) / max(len(self.batch), 1)
        return {**update_metrics(self.objective, batch), "alive": share}

    def renew(self, name: str) -> None:
        """Compute the columns of a reference afresh: it moved since the batch was collected."""
        old = {c for c in self.batch.columns if c.split(".")[:2] == ["ref", name]}
        rest = {c: x for c, x in self.batch.columns.items() if c not in old}
        bare = replace(self.batch, columns=rest)
        self.batch = add_frozen(bare, frozenset(old), self.state, self.backend)

    def _sum_gradients(self) -> None:
        if self.backend.world == 1:
            return
        parameters = self.state.parameters(self.index)
        for p in parameters:  # ranks sum the same list, whatever their share touched
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        self.backend.sum_([p.grad for p in parameters if p.grad is not None])

    def _computed(self, batch: Batch) -> Tensor:
        """Steps of all coupled units, and network inputs, that have an alive step."""
        live = alive(self.objective, batch).double()
        couples = self.objective.couples
        unit = "seq" if couples == "step" else couples
        return batch.max(live, within=unit) > 0 if len(batch) else live > 0

    def _unit(self, batch: Batch, costs: list[int]) -> tuple[str, bool]:
        """The unit at which micro-batches are cut, and whether it holds whatever is coupled."""
        budget, couples = self.state.settings.token_budget, self.objective.couples
        if couples == "step":
            return "seq", True
        if couples in ("turn", "traj"):
            return "traj", True
        largest = max(
            float(torch.as_tensor(costs)[_seqs(batch, p)].sum())
            for p in cuts(batch, couples, costs, 0)
        )
        return (couples, True) if largest <= budget else ("traj", False)

    def _live(self, part: Batch) -> Batch:
        columns = self.objective.likelihood(
            self.state.policy, part, self.objective.live, self.state.heads
        )
        return part.with_({**columns, **self._anchor(part, columns)})

    def _anchor(self, part: Batch, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        logp = columns.get("logp")
        return {} if logp is None else _old(self.objective, part, logp.detach())

    def _one_pass(self, batch: Batch, parts: list[Tensor]) -> Batch:
        found: dict[str, Tensor] = {}
        names = [*self.objective.live, *_old(self.objective, batch, batch["weight"])]
        for part, counts in shares(parts, self.backend):
            with span("forward"):
                live = self._live(batch.take(part))
            if counts:
                self._backward(live)
            fill(found, {name: live[name] for name in names}, part, len(batch), counts)
        self.backend.sum_([found[k] for k in sorted(found)])
        return batch.with_(found)

    def _backward(self, live: Batch) -> None:
        logp = live.columns.get("logp")
        if logp is not None and logp.requires_grad:
            logp.retain_grad()
        loss = self.objective.loss(live)
        with span("backward"):
            loss.backward()
        self._note(live, None if logp is None else logp.grad)

    def _note(self, part: Batch, slope: Tensor | None) -> None:
        if self.pull is not None and slope is not None:
            self.pull.index_add_(0, part["row"], -slope.to(self.pull))

    def _two_passes(self, batch: Batch, parts: list[Tensor]) -> Batch:
        with span("forward"):
            found = gather(batch, self.objective.live, parts, self.state, self.backend)
        whole = batch.with_({**found, **self._anchor(batch, found)})
        leaves = {name: x.clone().requires_grad_() for name, x in found.items()}
        loss = self.objective.loss(whole.with_(leaves))
        grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        slope = {n: g for n, g in zip(leaves, grads, strict=True) if g is not None}
        drift = 0.0
        for part, counts in shares(parts, self.backend):
            if not counts:
                break
            with span("forward"):
                again = self._live(batch.take(part))
            self._note(again, slope["logp"][part] if "logp" in slope else None)
            form = torch.stack([(again[n] * g[part].to(again[n])).sum() for n, g in slope.items()])
            with span("backward"):
                form.sum().backward()
            gaps = [(again[n].detach() - found[n][part]).abs().max() for n in slope]
            drift = max(drift, *(float(g) for g in gaps))
        return whole.with_({"drift": torch.full((len(batch),), drift)})


def _seqs(batch: Batch, part: Tensor) -> Tensor:
    return torch.unique(batch.ids["seq"][part])
