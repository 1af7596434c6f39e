"""`Piece`: a frozen dataclass with one `__call__`, the value that a recipe puts on an axis.

A piece may declare five things and no more: `needs`, `couples`, `init`, `observe`, `modules`.
`check` is not a declaration but a refusal: it runs when a recipe is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.request import Request

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe

LEVELS = ("step", "turn", "traj", "group", "batch")
"""Nested units from the smallest to the largest: the order in which coupling is compared."""


def widest(levels: Iterable[str]) -> str:
    """The largest of some levels, `step` for none."""
    return max(levels, key=LEVELS.index, default="step")


class Piece(ABC):
    """Base of all pieces: the declarations, with what a piece that declares nothing means."""

    axis: ClassVar[str]

    @classmethod
    def of(cls, **values: Any) -> Any:
        """The piece with these field values: how a stored or changed recipe is rebuilt."""
        return cls(**values)

    @property
    def needs(self) -> frozenset[str]:
        """Model columns that the piece reads (`logp`, `logp_old`, `ref.base`, `value`, …)."""
        return frozenset()

    @property
    def couples(self) -> str:
        """How far one term sees under the current policy: a member of `LEVELS`."""
        return "step"

    def init(self) -> dict[str, Any]:
        """Named state that the piece wants kept; pieces that use one name share one state."""
        return {}

    def observe(self, batch: Batch, state: dict[str, Any]) -> dict[str, Any]:
        """The named state after an update (drifts, adaptive coefficients).

        Of a piece that has some, the live columns it needs are those of the updated policy.
        """
        return state

    def modules(self) -> dict[str, int]:
        """Owned heads, name → outputs, that the likelihood evaluates into columns."""
        return {}

    def check(self, recipe: Recipe) -> None:
        """Raise `UsageError` when the piece cannot work in this recipe."""
        return None  # most pieces work in every recipe

    def __add__(self, other: Piece) -> Any:
        from anypo.core.combine import Plus

        return Plus(self, other)

    def __mul__(self, other: Piece) -> Any:
        from anypo.core.combine import Product

        return Product(self, other)

    def __rmul__(self, factor: float) -> Any:
        from anypo.core.combine import Times

        return Times(float(factor), self)

    def __rshift__(self, other: Any) -> Any:
        from anypo.core.combine import Chain, SamplingChain

        chain: Any = SamplingChain if self.axis == "sampling" else Chain
        return chain(self, other)


class Reward(Piece):
    """Axis A: shaping, `(batch) → reward[N]`; chained left to right."""

    axis = "reward"

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """The shaped reward of every step, `[N]`."""


class Probing(Protocol):
    """A rollout beside the one that trains: its rewards become the column `name`."""

    @property
    def name(self) -> str:
        """The column."""
        ...

    def ask(self, request: Request) -> Request:
        """What to ask for beside a request."""
        ...

    def read(self, batch: Batch, probed: Batch) -> Tensor:
        """The column for `batch`, `[N]`, out of the scored rollouts of its prompts."""
        ...


class Sampling(Piece):
    """Axis B: how many trajectories, for what, and which stay."""

    axis = "sampling"
    group: int = 1

    @abstractmethod
    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """What to ask for next, given what was kept; `None` when the batch is complete.

        `wanted` is what one iteration asks for by default; `rounds` counts the requests so far.
        """

    @property
    def probes(self) -> tuple[Probing, ...]:
        """Further rollouts of the same prompts, of which only a number per trajectory stays."""
        return ()

    def mark(self, batch: Batch) -> Batch:
        """New trajectories with what the piece says of them, before they are rewarded."""
        return batch

    def keep(self, batch: Batch) -> Batch:
        """Selection before the statistics of the advantage."""
        return batch

    def thin(self, batch: Batch) -> Batch:
        """Selection after them."""
        return batch


class Advantage(Piece):
    """Axis C: credit, `(batch) → advantage[N]`, without gradient."""

    axis = "advantage"

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """The advantage of every step, `[N]`."""

    def targets(self, batch: Batch, advantage: Tensor) -> dict[str, Tensor]:
        """Further columns that follow from the estimate: a critic's regression target."""
        return {}


class LogRatio(Piece):
    """Axis D: `(batch) → log_ratio[N]`, with gradient, in log space."""

    axis = "ratio"

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """The log-ratio of every step, `[N]`."""


class Surrogate(Piece):
    """Axis E: `(batch) → objective[N]`, maximised; reads `log_ratio` and `advantage`."""

    axis = "surrogate"

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """The objective of every step, `[N]`."""


class Regularizer(Piece):
    """Axis F: `(batch) → penalty[N]`, minimised.

    `metric` is the name under which its mean is logged, divided by its `coefficient`.
    """

    axis = "regularize"
    metric: ClassVar[str] = ""

    @property
    def coefficient(self) -> float:
        """What the logged mean is divided by."""
        return 1.0

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """The penalty of every step, `[N]`."""


class Aggregate(Piece):
    """Axis G: `(batch) → weight[N]`, without gradient, fixed on the whole update batch."""

    axis = "aggregate"

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor:
        """The weight of every step, `[N]`."""


class Likelihood(Piece):
    """Axis H: `(policy, batch, needs, heads) → {column: tensor}`; alone calls a network."""

    axis = "likelihood"

    @abstractmethod
    def __call__(
        self, policy: Any, batch: Batch, needs: frozenset[str], heads: Any
    ) -> dict[str, Tensor]:
        """The named model columns."""


class Update(Piece):
    """Axis I: how a collected batch becomes optimizer steps."""

    axis = "update"

    @abstractmethod
    def minibatches(self, batch: Batch, unit: str, generator: torch.Generator) -> Iterable[Batch]:
        """The update batches, cut at `unit`, the largest unit that the recipe couples."""

    @property
    def visits(self) -> int:
        """Optimizer steps per collected batch."""
        return 1

    @abstractmethod
    def optimizer(self, parameters: list[Any], lr: float) -> torch.optim.Optimizer:
        """A fresh optimizer of these parameters."""

    @abstractmethod
    def step(self, problem: Any, optimizer: torch.optim.Optimizer, lr: float) -> dict[str, float]:
        """One optimizer step on a `Problem`; returns its metrics."""


@dataclass(frozen=True)
class Off(LogRatio):
    """No importance ratio: `log_ratio = logp − sg(logp)`, so the ratio is 1 and its gradient ∇logp.

    Valid on data of the current policy. Shapes: `[N]`. Reference: REINFORCE, Williams 1992.
    """

    @property
    def needs(self) -> frozenset[str]:
        """`logp`."""
        return frozenset({"logp"})

    def __call__(self, batch: Batch) -> Tensor:
        """Zero with the gradient of `logp`."""
        return batch["logp"] - batch["logp"].detach()


def require(condition: bool, piece: Piece, field: str, allowed: str) -> None:
    """Refuse a bad hyper-parameter with a sentence that names piece, field and range."""
    if not condition:
        name, value = type(piece).__name__, getattr(piece, field)
        raise UsageError(f"{name}({field}={value!r}): {field} must be {allowed}")
