"""What the small policies share: weights in one module, sampled as they are trained."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from anypo.core.batch import Batch
from anypo.policies.store import load_module, save_module
from anypo.policies.swap import snapshot, swapped


class SmallPolicy:
    """Base of policies with one row of inputs per step and no copy of their weights.

    `recorded` names the attributes that the run's record keeps.
    """

    module: nn.Module
    recorded: ClassVar[str]

    def _to(self, x: Tensor) -> Tensor:
        weight = next(self.module.parameters())
        return x.to(weight.device, weight.dtype)

    def costs(self, batch: Batch) -> list[int]:
        """One row for each `seq`."""
        return [1] * batch.count("seq")

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the trainable weights, to serve as a reference."""
        return snapshot(self.module)

    def using(self, weights: Mapping[str, Tensor]) -> AbstractContextManager[nn.Module]:
        """Run under a snapshot until the block ends."""
        return swapped(self.module, weights)

    def publish(self) -> None:
        """Nothing to do: sampling uses the trained module itself."""

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `config.json`."""
        save_module(self.module, folder, self.settings())

    def load(self, folder: Path) -> None:
        """Read the weights back, in place; `UsageError` if they do not fit."""
        load_module(self.module, folder)

    def settings(self) -> dict[str, Any]:
        """What the run's record says of this policy."""
        return {name: getattr(self, name) for name in self.recorded.split()}
