"""Two estimates in one place: one beside the other, or one in place of the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.combine import Combined, value
from anypo.core.errors import UsageError
from anypo.core.piece import Advantage, require


@dataclass(frozen=True)
class Beside(Combined, Advantage):  # pyright: ignore[reportIncompatibleVariableOverride]
    """An advantage, and a second estimate that is written into a column of its own.

    Parameters: `main` (the advantage), `name` (the column, `[N]`, that a surrogate reads), `other`
    (what is written there, once per collected batch). Shapes: `[N]`.
    Reference: a regression target beside its weight, bounded-ratio RL, 2604.18578.
    """

    main: Advantage
    name: str
    other: Advantage

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name.isidentifier() or self.name == "advantage":
            raise UsageError(f"Beside(name={self.name!r}): name must be a word, not advantage")

    def __call__(self, batch: Batch) -> Tensor:
        """The main estimate."""
        return value(self.main, batch)

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """The targets of the main estimate, and the second one."""
        return {**self.main.targets(batch, advantage), self.name: value(self.other, batch)}


@dataclass(frozen=True)
class Fallback(Combined, Advantage):  # pyright: ignore[reportIncompatibleVariableOverride]
    """An advantage, and another one for the whole units in which it is somewhere too large.

    `A_n = main_n`, unless some `|main_m| ≥ limit` in the unit of n: there it is `other_n`.

    Parameters: `main`, `other` (the two), `limit` (default 5), `within` (the unit, default
    `group`). It is its own piece because a clamp would change single steps of a unit.
    Shapes: `[N]`. Reference: HAPO's code, 2509.16591.
    """

    main: Advantage
    other: Advantage
    limit: float = 5.0
    within: str = "group"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.limit > 0, self, "limit", "above 0")

    def __call__(self, batch: Batch) -> Tensor:
        """The one or the other."""
        first = value(self.main, batch)
        largest = batch.max(first.abs(), within=self.within)
        return torch.where(largest >= self.limit, value(self.other, batch), first)

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """Those of the first."""
        return self.main.targets(batch, advantage)
