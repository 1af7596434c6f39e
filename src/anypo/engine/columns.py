"""Forward passes cut by a token budget: frozen columns, and how a batch is cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.clock import span
from anypo.engine.backend import Backend
from anypo.engine.state import State
from anypo.math import segments


def cuts(batch: Batch, unit: str, costs: list[int], budget: int) -> list[Tensor]:
    """Step indices of micro-batches: whole units, in order, within a budget where a unit allows.

    `costs` has one entry per `seq`. A unit above the budget gets a micro-batch of its own.
    """
    if not len(batch):
        return []
    ids, count = segments.dense(batch.id(unit))
    picks = segments.first_index(batch.ids["seq"], batch.count("seq"))
    cost = torch.as_tensor(costs, dtype=torch.float64)
    per_unit = segments.segment_sum(cost, ids[picks], count).tolist()
    bins, used = torch.zeros(count, dtype=torch.long), 0.0
    current = 0
    for k, size in enumerate(per_unit):
        if used and used + size > budget:
            current, used = current + 1, 0.0
        used += size
        bins[k] = current
    of_step = bins[ids]
    return [torch.nonzero(of_step == b).flatten() for b in range(current + 1)]


def shares(parts: list[Tensor], backend: Backend) -> Iterator[tuple[Tensor, bool]]:
    """The micro-batches of this rank, each with whether it counts.

    A rank without one takes the first, not counted: it learns the shapes and joins the sums.
    """
    mine = parts[backend.rank :: backend.world]
    yield from ((part, True) for part in mine)
    if parts and not mine:
        yield parts[0], False


def gather(
    batch: Batch, needs: frozenset[str], parts: list[Tensor], state: State, backend: Backend
) -> dict[str, Tensor]:
    """Model columns of a whole batch without gradient, each rank computing its share of parts."""
    found: dict[str, Tensor] = {}
    likelihood = state.recipe.likelihood
    with torch.no_grad():
        for part, counts in shares(parts, backend):
            values = likelihood(state.policy, batch.take(part), needs, state.heads)
            fill(found, values, part, len(batch), counts)
    backend.sum_([found[k] for k in sorted(found)])
    return found


def score_norms(batch: Batch, state: State, backend: Backend) -> Tensor:
    """`‖∇_θ Σ_t logp_t‖²` of each trajectory under the current policy, float64 `[N]`.

    One backward pass per trajectory, so this costs about as much as the update itself.
    """
    traj, count = segments.dense(batch.id("traj"))
    norms = torch.zeros(count, dtype=torch.float64)
    parameters = [p for p in state.policy.module.parameters() if p.requires_grad]
    for k in range(backend.rank, count, backend.world):
        part = batch.take(traj == k)
        wanted = frozenset({"logp"})
        total = state.recipe.likelihood(state.policy, part, wanted, state.heads)["logp"].sum()
        grads = torch.autograd.grad(total, parameters, allow_unused=True)
        norms[k] = sum(float(g.double().square().sum()) for g in grads if g is not None)
    backend.sum_([norms])
    return norms[traj]


def fill(
    found: dict[str, Tensor], values: Mapping[str, Tensor], part: Tensor, rows: int, counts: bool
) -> None:
    """Write the columns of a part into those of the whole batch, which begin as zeros."""
    for name, x in values.items():
        whole = found.setdefault(name, x.new_zeros((rows, *x.shape[1:])))
        if counts:
            whole[part] = x.detach()


def add_watched(batch: Batch, state: State, backend: Backend) -> Batch:
    """The batch with the live columns that pieces with named state read, after the update."""
    needs = state.recipe.watched
    if not needs or not len(batch):
        return batch
    parts = cuts(batch, "traj", state.policy.costs(batch), state.settings.token_budget)
    with span("after"):
        return batch.with_(gather(batch, needs, parts, state, backend))


def add_frozen(batch: Batch, needs: frozenset[str], state: State, backend: Backend) -> Batch:
    """The batch with its frozen model columns: old, reference and critic columns, no gradient.

    `x_old` is `x` before the update; `ref.NAME` is `logp`, and `ref.NAME.x` is `x`, under the named
    reference.
    """
    missing = frozenset(c for c in needs if c not in batch)
    if not missing or not len(batch):
        return batch
    costs = state.policy.costs(batch)
    parts = cuts(batch, "traj", costs, state.settings.token_budget)
    own = frozenset(c.removesuffix("_old") for c in missing if not c.startswith("ref."))
    own -= {"score_norm"}
    found: dict[str, Tensor] = {}
    if own:
        with span("old_logp" if "logp" in own else "values"):
            found = gather(batch, own, parts, state, backend)
    if "score_norm" in missing:
        with span("score_norm"):
            found["score_norm"] = score_norms(batch, state, backend)
    columns = {c: found[c.removesuffix("_old")] for c in missing if not c.startswith("ref.")}
    for name in sorted({c.split(".")[1] for c in missing if c.startswith("ref.")}):
        wanted = {c: (c.split(".") + ["logp"])[2] for c in missing if c.split(".")[1:2] == [name]}
        with span("reference"), state.reference(name):
            values = gather(batch, frozenset(wanted.values()), parts, state, backend)
        columns |= {c: values[x] for c, x in wanted.items()}
    return batch.with_(columns)
