"""A dry run: what a recipe does to synthetic steps, to tell whether an option has any effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.dump import dump, rows
from anypo.core.recipe import Objective, Recipe, recorded
from anypo.core.rng import generator
from anypo.engine.collect import credit, shape
from anypo.engine.problem import weigh

SPREADS = (0.5, 3e-4, 0.02, 0.2, 0.8, 4.0, 60.0)
"""How far live columns stand from their anchors: from GSPO's bounds to the caps."""

TILTS = (0.0, 5.0, -5.0, 0.5, -0.5, 1.0, 2.0)
"""How much a trajectory's length adds to its reward: whether credit falls on many steps or few."""

SCENES = tuple(product(SPREADS, TILTS))
HORIZON, LONGEST = 16, 4096
SHARES = ("cov_ratio", "gate")
"""Fields that no synthetic batch shows: shares below one step, lengths above its answers."""

GROUPS, TRAJECTORIES = 6, 24
FLOAT = torch.float64


def dry_run(recipe: Recipe, horizon: int = HORIZON, fresh: bool = False) -> dict[str, Tensor]:
    """Losses of synthetic steps, and their gradients with respect to every live column.

    Each scene goes through shaping, selection, advantage, weights and loss in float64. Scenes
    differ in how far `logp`, `value` and the other live columns stand from their anchors, and in
    whether long trajectories are the good ones; each has groups with equal, lopsided, two-valued
    and scattered rewards, and trajectories of 2 steps up to `horizon`. Later phases and the ends of
    schedules are run as well.

    Parameters: `horizon` (the budget in steps); `fresh`: `logp_old` is `logp`, as it is at the only
    update of a batch. Returns `"iteration/scene/objective/what" → [N]`, the same at every call.
    """
    return dict(_pieces(recipe, horizon, fresh))


def _pieces(recipe: Recipe, horizon: int, fresh: bool) -> Iterator[tuple[str, Tensor]]:
    few = horizon > HORIZON  # long trajectories are there for a penalty on length alone
    for step, scene in product(iterations(recipe), range(len(TILTS) if few else len(SCENES))):
        resolved = recipe.at(step)
        batch = collected(resolved, scene, horizon, fresh)
        for i, objective in enumerate(resolved.objectives if len(batch) else ()):
            losses, grads = gradients(objective, batch)
            yield f"{step}/{scene}/{i}/loss", losses
            yield from ((f"{step}/{scene}/{i}/{name}", g) for name, g in grads.items())
        if kept := observed(resolved, batch):
            yield f"{step}/{scene}/state", torch.tensor(kept, dtype=FLOAT)


def observed(recipe: Recipe, batch: Batch) -> list[float]:
    """The numbers that the recipe's pieces keep after a batch seen twice, in a fixed order."""
    state = {k: v for p in recipe.pieces for k, v in p.init().items()}
    for piece in 2 * recipe.pieces if len(batch) else ():  # the first may only set the start
        state = piece.observe(batch, state)
    kept = [state[name] for name in sorted(state)]
    tables = [x if isinstance(x, dict) else {"": x} for x in kept]
    return [float(t[k]) for t in tables for k in sorted(t) if isinstance(t[k], (int, float))]


def iterations(recipe: Recipe) -> list[int]:
    """Iterations at which a recipe may differ: the start of every phase, points of a schedule."""
    ends = [getattr(s, "steps", 100) for s in recipe.schedules.values()]
    counts = [n for end in ends for n in (end if isinstance(end, tuple) else (end // 2, end))]
    return sorted({0, *counts, *(p.at for p in recipe.phases)})


def ineffective(base: Recipe, changed: Recipe, fresh: bool = False) -> bool:
    """Whether two recipes train alike: equal fields where no gradient shows, equal dry runs.

    Losses are compared beside gradients, so that a bound counts as soon as it cuts a value, even if
    no synthetic step lies between the old bound and the new one.
    """
    if dump(base) == dump(changed):
        return True
    if _facts(base) != _facts(changed):
        return False
    horizon = min(LONGEST, max([HORIZON, *_limits(base), *_limits(changed)]))
    runs = [_pieces(recipe, horizon, fresh) for recipe in (base, changed)]
    return all(_same(*pair) for pair in zip(*runs, strict=True))


def _facts(recipe: Recipe) -> list[Any]:
    """What no gradient shows: what is read and sampled, and what is done with a gradient."""
    steps = [recipe.at(k) for k in iterations(recipe)]
    facts = [[dump(r.sampling), dump(r.update), dump(r.likelihood), r.modules()] for r in steps]
    live = [sorted(o.live) for r in steps for o in r.objectives]
    few = [v for r in steps for k, v in rows(r).items() if k.split(".")[-1] in SHARES]
    return [facts, live, few, iterations(recipe), [p.refresh for p in recipe.phases]]


def _limits(recipe: Recipe) -> list[int]:
    return [int(getattr(piece, "limit", 0)) for piece in recipe.reward]


def _same(a: tuple[str, Tensor], b: tuple[str, Tensor]) -> bool:
    same_shape = a[0] == b[0] and a[1].shape == b[1].shape
    return same_shape and torch.equal(a[1].nan_to_num(), b[1].nan_to_num())


def gradients(objective: Objective, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Weighted losses `[N]`, and the gradient of their sum for every live column."""
    batch = weigh(objective, batch)
    leaves = {c: batch[f"live {c}"].clone().requires_grad_() for c in sorted(objective.live)}
    live = batch.with_(leaves)
    losses = live["weight"] * objective.losses(live)
    if not losses.requires_grad:
        return losses, {}
    grads = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
    return losses.detach(), {c: g for c, g in zip(leaves, grads, strict=True) if g is not None}


def collected(recipe: Recipe, scene: int, horizon: int = HORIZON, fresh: bool = False) -> Batch:
    """A scene's batch after shaping, selection and credit, with every column the recipe reads.

    Live columns are there twice: as a pass before the update saw them, and as `"live NAME"`.
    """
    spread, tilt = SCENES[scene]
    size = recipe.sampling.group
    batch = _trajectories(size, horizon)
    table = {**batch.table("traj"), **invented(sorted(recipe.facts), batch.count("traj"))}
    batch = replace(batch, tables={"traj": table})
    reward = torch.where(batch.last("traj"), _outcomes(batch, size, tilt), 0.0)
    batch = batch.with_({"reward": reward, **_columns(recipe, batch, spread, fresh)})
    batch = shape(recipe, recipe.sampling.mark(batch))
    batch = credit(recipe, recipe.sampling.keep(batch))
    return recipe.sampling.thin(batch) if len(batch) else batch


KINDS = ("right answers", "wrong answers")
RATIOS = {"ratio below 0.8": (0.0, 0.8), "ratio near 1": (0.8, 1.2), "ratio above 1.2": (1.2, 1e9)}


def pushes(recipe: Recipe) -> dict[str, float]:
    """Kind of step → the mean of `−∂loss/∂logp` on it, in units of its mean size over all steps.

    Kinds are the sign of the reward against its group crossed with the step's own ratio to the old
    policy, and with short and long trajectories. All of it on the first scene.
    """
    resolved = recipe.at(0)
    batch = weigh(resolved.objectives[0], collected(resolved, 0))
    _, grads = gradients(resolved.objectives[0], batch)
    if "logp" not in grads:
        return {}
    push = -grads["logp"] / grads["logp"].abs().mean()
    outcome = batch.sum(batch["score"], within="traj")
    middle = batch.mean(outcome, within="group" if recipe.sampling.group > 1 else "batch")
    ratio = (batch["live logp"] - batch["logp"]).exp()
    length = batch.size("step", "traj")
    groups = {k: (ratio >= low) & (ratio < high) for k, (low, high) in RATIOS.items()}
    groups |= {"short trajectories": length <= 6, "long trajectories": length >= 13}
    signs = dict(zip(KINDS, (outcome > middle, outcome < middle), strict=True))
    found = {f"{s}, {k}": signs[s] & groups[k] for s in KINDS for k in groups}
    return {name: float(push[x].mean()) for name, x in found.items() if bool(x.any())}


def _trajectories(size: int, horizon: int) -> Batch:
    """Groups of `size` trajectories of uneven lengths, of two turns each."""
    count = max(GROUPS, -(-TRAJECTORIES // size)) * size
    shares = torch.tensor([1.0, 0.25, 0.9, 0.6, 0.1, 0.85, 0.4], dtype=FLOAT)
    lengths = (shares[torch.arange(count) % len(shares)] * horizon).long().clamp(min=2)
    traj = torch.arange(count).repeat_interleave(lengths)
    position = torch.cat([torch.arange(n) for n in lengths.tolist()])
    ids = {"traj": traj, "seq": traj, "group": traj // size, "prompt": traj // size}
    ids |= {"turn": 2 * traj + (position * 2 >= lengths[traj]).long(), "position": position}
    ids |= {"segment": ids["turn"], "stage": ids["turn"] % 2, "version": torch.zeros_like(traj)}
    ended = torch.arange(count) % 3 > 0
    table = {"terminated": ended, "truncated": ~ended}
    # One more than any length, so that a limit equal to the longest one is not the horizon.
    table["horizon"] = torch.full((count,), horizon + 1)
    tokens = [torch.arange(n) * (1 + i % 3) % 7 for i, n in enumerate(lengths.tolist())]
    return Batch({}, ids, {"traj": table}, {"tokens": tokens})


def _outcomes(batch: Batch, size: int, tilt: float) -> Tensor:
    """Rewards of trajectories: groups in turn equal, lopsided, two-valued, scattered; `[N]`."""
    traj, count = batch.id("traj"), batch.count("traj")
    index, length = torch.arange(count), batch.size("step", "traj")
    long = (length / length.mean() - 1)[batch.last("traj")]
    scattered = tilt * long + torch.randn(count, generator=generator(0, "outcome"), dtype=FLOAT)
    lone = (index % size == 0).double() * (-1.0 if tilt < 0 else 1.0)
    kinds = torch.stack([torch.ones(count), lone, (scattered > 0).double(), scattered])
    return kinds[(index // size if size > 1 else index) % len(kinds), index][traj]


def _columns(recipe: Recipe, batch: Batch, spread: float, fresh: bool) -> dict[str, Tensor]:
    """Model columns: anchors, references and the sampler near them, live ones `spread` away."""
    live = frozenset[str]().union(*(o.live for o in recipe.objectives))
    names = {n for n in recipe.frozen_needs | live if not recorded(n)}
    found = {name: _noise(batch, _kind(name)) for name in sorted(names | {"logp", "logp_mu"})}
    for name in found:
        if name.startswith("ref.") or name == "logp_mu":
            found[name] = found[name] + spread / 2 * _noise(batch, name)
    found |= {f"live {c}": found[c] + spread * _noise(batch, f"live {c}") for c in live}
    if "value_next" in found:
        found["value_next"] = batch.next(found["value"], fill=found["value_next"])
    if fresh and "logp_old" in found:
        found["logp_old"] = found["live logp"]
    found |= {p.name: 0.5 + 0.1 * _noise(batch, p.name) for p in recipe.sampling.probes}
    found |= {"std": 0.5 + _noise(batch, "std").abs(), "lot": torch.arange(len(batch)) / len(batch)}
    for name in {n for n in found if _kind(n) in POSITIVE}:
        found[name] = found[name].abs()
    if "score_norm" in found:  # one number per trajectory
        found["score_norm"] = batch.mean(found["score_norm"], within="traj")
    return {**found, "control": (batch.id("group") % 5 == 4).to(FLOAT)}


POSITIVE = ("entropy", "score_norm")


class Invented(list[float]):
    """A fact for a dry run: a number, a list of parts, and a label, whichever is read."""

    def __float__(self) -> float:
        return self[0]


def invented(names: Iterable[str], count: int) -> dict[str, list[Invented]]:
    """Facts of `count` trajectories that differ, the same at every call."""
    return {n: [Invented([float(i % 3 == 0), i % 2, 1.0]) for i in range(count)] for n in names}


def _kind(name: str) -> str:
    """What a column holds: `ref.base` and `logp_old` are `logp`, `ref.base.mean` is `mean`."""
    if name.startswith("ref."):
        return (name.split(".") + ["logp"])[2]
    return "logp" if name == "logp_mu" else name.removesuffix("_old")


def _noise(batch: Batch, name: str) -> Tensor:
    """Standard normal numbers that belong to a name; vectors for the mean of a step."""
    shape = (len(batch), 2) if name.endswith("mean") else (len(batch),)
    return torch.randn(shape, generator=generator(0, "dry", name), dtype=FLOAT)
