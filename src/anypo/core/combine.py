"""Combinators: `a + b`, `w * a`, `a >> b` on pieces of one axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Piece, Probing, Sampling, widest
from anypo.core.request import Request

COLUMN = {"reward": "reward", "advantage": "advantage", "ratio": "log_ratio"}
"""The column that an axis writes: what the right side of `a >> b` reads."""


class Combined(Piece):
    """Base of the combinators: what several pieces of one axis declare together."""

    metric = ""
    coefficient = 1.0

    @property
    def parts(self) -> tuple[Piece, ...]:
        """The combined pieces, left to right."""
        return tuple(v for v in vars(self).values() if isinstance(v, Piece))

    @property
    def axis(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The axis of the parts."""
        return self.parts[0].axis

    def __post_init__(self) -> None:
        if len(axes := {p.axis for p in self.parts}) > 1:
            raise UsageError(f"cannot combine pieces of different axes: {', '.join(sorted(axes))}")

    @property
    def needs(self) -> frozenset[str]:
        """What any part needs."""
        return frozenset().union(*(p.needs for p in self.parts))

    @property
    def couples(self) -> str:
        """The widest coupling of the parts."""
        return widest(p.couples for p in self.parts)

    def init(self) -> dict[str, Any]:
        """The named states of all parts."""
        return {k: v for p in self.parts for k, v in p.init().items()}

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """Every part observes in turn."""
        for part in self.parts:
            state = part.observe(batch, state)
        return state

    def modules(self) -> dict[str, int]:
        """The heads of all parts."""
        return {k: v for p in self.parts for k, v in p.modules().items()}

    def check(self, recipe: Any) -> None:
        """Every part checks."""
        for part in self.parts:
            part.check(recipe)

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """Targets of the parts that have some, each from its own estimate."""
        found: dict[str, Tensor] = {}
        for part in self.parts:
            estimate = value(part, batch)
            found |= cast(Any, part).targets(batch, estimate)
        return found


def value(piece: Piece, batch: Batch) -> Tensor:
    """Call a piece whose result is one number per step."""
    return cast(Callable[[Batch], Tensor], piece)(batch)


@dataclass(frozen=True)
class Plus(Combined):
    """`a + b`: the sum of two pieces of one axis, step by step. Shapes: `[N]`."""

    left: Piece
    right: Piece

    def __call__(self, batch: Batch) -> Tensor:
        """`left + right`."""
        return value(self.left, batch) + value(self.right, batch)


@dataclass(frozen=True)
class Times(Combined):
    """`w * a`: a piece scaled by a constant. Shapes: `[N]`."""

    factor: float
    part: Piece

    def __call__(self, batch: Batch) -> Tensor:
        """`factor · part`."""
        return self.factor * value(self.part, batch)


@dataclass(frozen=True)
class Product(Combined):
    """`a * b`: the product of two pieces of one axis, step by step. Shapes: `[N]`."""

    left: Piece
    right: Piece

    def __call__(self, batch: Batch) -> Tensor:
        """`left · right`."""
        return value(self.left, batch) * value(self.right, batch)


@dataclass(frozen=True)
class Chain(Combined):
    """`a >> b`: `b` reads what `a` wrote in the axis's column. Shapes: `[N]`."""

    first: Piece
    second: Piece

    def __call__(self, batch: Batch) -> Tensor:
        """`second` on the batch in which the axis's column is that of `first`."""
        if self.axis not in COLUMN:
            raise UsageError(f"`>>` has no meaning on the axis {self.axis!r}")
        return value(self.second, batch.with_({COLUMN[self.axis]: value(self.first, batch)}))

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """The targets of `first`, taken before `second` rescales its estimate."""
        return cast(Any, self.first).targets(batch, value(self.first, batch))


@dataclass(frozen=True)
class SamplingChain(Combined, Sampling):  # pyright: ignore[reportIncompatibleVariableOverride]
    """`a >> b` on the sampling axis: `a` asks, then both select, left to right."""

    first: Sampling
    second: Sampling

    @property
    def group(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The group size that `first` asks for."""
        return self.first.group

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """`second` says how much is missing; `first` says how it is asked for."""
        missing = self.second.request(batch, wanted, rounds)
        return missing and self.first.request(Batch.empty(), missing, 0)

    @property
    def probes(self) -> tuple[Probing, ...]:
        """The probes of both."""
        return (*self.first.probes, *self.second.probes)

    def mark(self, batch: Batch) -> Batch:
        """Both, left to right."""
        return self.second.mark(self.first.mark(batch))

    def keep(self, batch: Batch) -> Batch:
        """Both selections, left to right."""
        return self.second.keep(self.first.keep(batch))

    def thin(self, batch: Batch) -> Batch:
        """Both selections, left to right."""
        return self.second.thin(self.first.thin(batch))
