"""Small networks for control and for 2-D flows, initialised from an explicit random stream."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init


def mlp(
    sizes: Sequence[int],
    activation: type[nn.Module],
    last_gain: float,
    generator: torch.Generator,
) -> nn.Sequential:
    """A multilayer perceptron with orthogonal weights and zero biases.

    Hidden layers have gain `sqrt 2`, the last one `last_gain` (in control 0.01 for a policy head
    and 1 for a critic: "The 37 Implementation Details of PPO", detail 2). Nothing is drawn from
    the global random state.
    """
    layers: list[nn.Module] = []
    for k in range(len(sizes) - 1):
        is_last = k == len(sizes) - 2
        layer = skip_init(nn.Linear, sizes[k], sizes[k + 1])
        assert isinstance(layer, nn.Linear)
        gain = last_gain if is_last else math.sqrt(2)
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
        layers += [layer] if is_last else [layer, activation()]
    return nn.Sequential(*layers)


class TimedMLP(nn.Module):
    """A function of a point and a time, `(x[N, dim], t[N]) → [N, outputs]`.

    Time enters as `sin` and `cos` of `π·k·t/2`, `k = 1 … 4`.
    """

    FREQUENCIES = 4

    def __init__(
        self, dim: int, outputs: int, hidden: int, depth: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = [dim + 2 * self.FREQUENCIES, *[hidden] * depth, outputs]
        self.net = mlp(sizes, nn.SiLU, 1.0, generator)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Value at each point and time, `[N, outputs]`."""
        k = torch.arange(1, self.FREQUENCIES + 1, dtype=x.dtype, device=x.device)
        phase = t.to(x.dtype)[:, None] * k * (math.pi / 2)
        return self.net(torch.cat([x, phase.sin(), phase.cos()], 1))
