"""What the loop asks of a backend: rollouts, evaluation, and sums over its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from anypo.core.batch import Batch
from anypo.core.request import Request
from anypo.engine.state import State


class Backend(Protocol):
    """Where a run happens. `rank` of `world` processes computes its share of the forward passes."""

    rank: int
    world: int

    def rollout(self, request: Request, state: State) -> Batch:
        """Trajectories of the current policy for a request."""
        ...

    def evaluate(self, state: State, seen: bool = False) -> dict[str, Any]:
        """Greedy scores on held-out questions, and on seen ones if wanted."""
        ...

    def record(self, batch: Batch, state: State, out: Path) -> None:
        """Store the trajectories of an iteration for people to look at."""
        ...

    def sum_(self, tensors: list[Tensor]) -> None:
        """Replace every tensor by its sum over all ranks, in place."""
        ...
