"""`Recipe`: one piece per axis; `Objective`: the part of it that has a gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import RecipeError, UsageError, nearest
from anypo.core.neutral import Adam, Direct, Groups, Mean, Reinforce, Return
from anypo.core.piece import (
    Advantage,
    Aggregate,
    Likelihood,
    LogRatio,
    Off,
    Piece,
    Regularizer,
    Reward,
    Sampling,
    Surrogate,
    Update,
    widest,
)
from anypo.core.schedule import Schedule

RECORDED = frozenset(
    {"reward", "advantage", "weight", "log_ratio", "logp_mu", "return", "std", "lot", "score"}
    | {"control", "target"}
)
"""Columns that a rollout or an earlier piece writes: no network is called for them."""


def frozen(column: str) -> bool:
    """Whether a model column is computed once per collected batch, without gradient."""
    return column.startswith("ref.") or column.endswith("_old") or column == "value_next"


def recorded(column: str) -> bool:
    """Whether a need is met by a rollout, a reward or an earlier piece, and by no network.

    `fact.NAME` is what a reward reports of a trajectory, `ref.NAME.rollout` are answers of a
    reference.
    """
    return column in RECORDED or column.startswith("fact.") or column.endswith(".rollout")


@dataclass(frozen=True)
class Objective:
    """`loss = Σ_n weight[n] · (−objective[n] + Σ penalty[n])` over the steps of an update batch."""

    ratio: LogRatio = field(default_factory=Off)
    surrogate: Surrogate = field(default_factory=Reinforce)
    regularize: tuple[Regularizer, ...] = ()
    aggregate: Aggregate = field(default_factory=lambda: Mean("traj", "batch"))
    likelihood: Likelihood = field(default_factory=Direct)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces with a gradient."""
        return (self.ratio, self.surrogate, *self.regularize)

    @property
    def live(self) -> frozenset[str]:
        """Model columns wanted with a gradient."""
        needs = frozenset[str]().union(*(p.needs for p in self.pieces))
        return frozenset(c for c in needs if not (frozen(c) or recorded(c)))

    @property
    def couples(self) -> str:
        """How far one term of the loss sees under the current policy."""
        return widest(p.couples for p in self.pieces)

    def losses(self, batch: Batch) -> Tensor:
        """`−objective + Σ penalty` of every step, `[N]`; the batch has its live columns."""
        batch = batch.with_({"log_ratio": self.ratio(batch)})
        loss = -self.surrogate(batch)
        for penalty in self.regularize:
            loss = loss + penalty(batch)
        return loss

    def loss(self, batch: Batch) -> Tensor:
        """The scalar loss of a batch that has its live columns and its weights."""
        return (batch["weight"] * self.losses(batch)).sum()


@dataclass(frozen=True)
class Phase:
    """From iteration `at` on, some axes are other pieces, and references are taken afresh."""

    at: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    refresh: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """One piece per axis; all defaults together are plain REINFORCE.

    Parameters
    ----------
    reward (A), sampling (B), advantage (C), ratio (D), surrogate (E), regularize (F),
    aggregate (G), likelihood (H), update (I) : the pieces.
    also : further objectives on disjoint parameters.
    schedules : path of a field → schedule, for example `{"surrogate.high": Linear(0.3, 0.2)}`.
    phases : made by `.then`.
    """

    reward: tuple[Reward, ...] = ()
    sampling: Sampling = field(default_factory=Groups)
    advantage: Advantage = field(default_factory=Return)
    ratio: LogRatio = field(default_factory=Off)
    surrogate: Surrogate = field(default_factory=Reinforce)
    regularize: tuple[Regularizer, ...] = ()
    aggregate: Aggregate = field(default_factory=lambda: Mean("traj", "batch"))
    likelihood: Likelihood = field(default_factory=Direct)
    update: Update = field(default_factory=Adam)
    also: tuple[Objective, ...] = ()
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    phases: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        for name in AXES:
            value = getattr(self, name)
            many = name in ("reward", "regularize")
            if many != isinstance(value, tuple):
                raise UsageError(
                    f"{name} takes {'a tuple of pieces, () for none' if many else 'one piece'}"
                )
            for piece in value if many else (value,):
                axis = getattr(piece, "axis", None)
                if axis != name:
                    raise UsageError(
                        f"{type(piece).__name__} is no {name} piece"
                        + (f"; it belongs to the axis {axis!r}" if axis else "")
                    )

    # ── deriving ────────────────────────────────────────────────────────────────────────────

    def but(self, **changes: Any) -> Recipe:
        """The same recipe with some axes replaced."""
        _known(changes, "recipe")
        return replace(self, **changes)

    def then(self, *, at: int, refresh: str | Iterable[str] = (), **changes: Any) -> Recipe:
        """From iteration `at` on: other pieces, and references taken afresh from the policy."""
        _known(changes, ".then")
        names = (refresh,) if isinstance(refresh, str) else tuple(refresh)
        if not (isinstance(at, int) and at >= 1):
            raise UsageError(f".then(at={at}): at must be a whole number of iterations, at least 1")
        return replace(self, phases=(*self.phases, Phase(at, changes, names)))

    def set(self, path: str, value: Any) -> Recipe:
        """The same recipe with the field at a dotted path replaced: `"surrogate.high"`."""
        return _set(self, path.split("."), value, path)

    def at(self, step: int) -> Recipe:
        """The recipe of one iteration: phases and schedules resolved."""
        recipe = replace(self, schedules={}, phases=())
        for phase in sorted(self.phases, key=lambda p: p.at):
            if step >= phase.at:
                recipe = recipe.but(**phase.changes)
        for path, schedule in self.schedules.items():
            recipe = recipe.set(path, schedule(step))
        return recipe

    def refreshes(self, step: int) -> tuple[str, ...]:
        """The references to be taken afresh at the start of this iteration."""
        return tuple(name for p in self.phases if p.at == step for name in p.refresh)

    # ── what it declares ────────────────────────────────────────────────────────────────────

    @property
    def axes(self) -> dict[str, Any]:
        """The pieces by axis: `.then(at=k, **other.axes)` goes on as another recipe."""
        return {name: getattr(self, name) for name in AXES}

    @property
    def facts(self) -> frozenset[str]:
        """Names of what rewards must report of a trajectory besides its number."""
        needs = (n for stage in self.stages for p in stage.pieces for n in p.needs)
        return frozenset(n.removeprefix("fact.") for n in needs if n.startswith("fact."))

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What is optimised: the recipe's own objective, then the further ones."""
        own = Objective(
            self.ratio, self.surrogate, self.regularize, self.aggregate, self.likelihood
        )
        return (own, *self.also)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Every piece, axis by axis."""
        own = (*self.reward, self.sampling, self.advantage)
        return (*own, *(p for o in self.objectives for p in (*o.pieces, o.aggregate)), self.update)

    @property
    def couples(self) -> str:
        """The widest coupling of the objectives: the unit at which minibatches are cut."""
        return widest(o.couples for o in self.objectives)

    def needs_of(self, *axes: str) -> frozenset[str]:
        """Model columns that the pieces of some axes read."""
        chosen = [p for a in axes for p in _tuple(getattr(self, a))]
        needs = frozenset[str]().union(*(p.needs for p in chosen))
        return frozenset(c for c in needs if not recorded(c))

    @property
    def early_needs(self) -> frozenset[str]:
        """Model columns that rewards and sampling read, computed as soon as a rollout is back."""
        return self.needs_of("reward", "sampling")

    @property
    def frozen_needs(self) -> frozenset[str]:
        """Model columns computed once per collected batch: old, reference and critic columns."""
        read = [p for o in self.objectives for p in (*o.pieces, o.aggregate)]
        later = {c for p in read for c in p.needs if frozen(c) and not recorded(c)}
        return self.needs_of("advantage") | self.early_needs | later

    @property
    def wants_old(self) -> bool:
        """Whether `logp_old` must be scored: a piece without a gradient, or with state, reads it.

        A ratio alone does not want it where a batch is seen once, under the weights that scored it.
        """
        early = self.needs_of("reward", "sampling", "advantage")
        late = (p.needs for p in self.pieces if p.init())  # observe() compares after the update
        return "logp_old" in early.union(*late, *(o.aggregate.needs for o in self.objectives))

    @property
    def watched(self) -> frozenset[str]:
        """Live columns that pieces with named state read: they observe them after the update."""
        kept = frozenset[str]().union(*(p.needs for p in self.pieces if p.init()))
        return kept & frozenset().union(*(o.live for o in self.objectives))

    @property
    def stages(self) -> tuple[Recipe, ...]:
        """The recipe at its start and at the start of every phase."""
        return tuple(self.at(step) for step in (0, *(p.at for p in self.phases)))

    @property
    def references(self) -> frozenset[str]:
        """Names of the references that some piece reads: `base` of `ref.base`."""
        columns = {c for stage in self.stages for c in stage.frozen_needs}
        columns |= {c for stage in self.stages for c in stage.sampling.needs}
        return frozenset(c.split(".")[1] for c in columns if c.startswith("ref."))

    def modules(self) -> dict[str, int]:
        """Owned heads, name → outputs."""
        return {k: v for s in self.stages for p in s.pieces for k, v in p.modules().items()}

    def check(self, name: str = "this recipe") -> Recipe:
        """Let every piece refuse the combination; returns the recipe."""
        for stage in self.stages:
            for piece in stage.pieces:
                try:
                    piece.check(stage)
                except UsageError as error:
                    raise RecipeError(name, str(error)) from None
        return self


AXES = (
    "reward",
    "sampling",
    "advantage",
    "ratio",
    "surrogate",
    "regularize",
    "aggregate",
    "likelihood",
    "update",
)


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _known(changes: Mapping[str, Any], where: str) -> None:
    names = [f.name for f in fields(Recipe)]
    for name in changes:
        if name not in names:
            raise UsageError(f"{where} has no axis {name!r}{nearest(name, names)}")


def _set(node: Any, path: list[str], value: Any, whole: str) -> Any:
    head, rest = path[0], path[1:]
    if isinstance(node, tuple):
        if not head.isdigit() or int(head) >= len(node):
            raise UsageError(f"{whole}: {head!r} must be a number below {len(node)}")
        items = list(node)
        items[int(head)] = _set(items[int(head)], rest, value, whole) if rest else value
        return tuple(items)
    names = [f.name for f in fields(node)] if is_dataclass(node) else []
    if head not in names:
        known = f" (it has {', '.join(names)})" if names else ""
        raise UsageError(
            f"{whole}: {type(node).__name__} has no field {head!r}{nearest(head, names)}{known}"
        )
    new = _set(getattr(node, head), rest, value, whole) if rest else value
    values = {f.name: getattr(node, f.name) for f in fields(node)} | {head: new}
    return rebuilt(type(node), values)


def rebuilt(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """An object of a recipe out of its field values."""
    return cls.of(**values) if issubclass(cls, Piece) else cls(**values)
