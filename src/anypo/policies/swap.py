"""Reference weights: take a copy of what is trained, and run a module under such a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A detached copy of every trainable parameter, by name."""
    return {k: p.detach().clone() for k, p in module.named_parameters() if p.requires_grad}


@contextmanager
def swapped(module: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[nn.Module]:
    """The module with `weights` in place of its parameters of these names, until the block ends.

    The parameters themselves are untouched (an optimizer keeps them, and a graph made before or
    inside the block stays valid); a tied parameter is replaced wherever it is used. Inside, the
    replaced weights are constants: no gradient reaches them.
    Raises `ValueError` for a name that is no parameter of the module or another shape.
    """
    own = dict(module.named_parameters())
    for name, x in weights.items():
        if name not in own or own[name].shape != x.shape:
            raise ValueError(f"no parameter {name!r} of shape {tuple(x.shape)} to swap")
    stand_in = {id(own[name]): x for name, x in weights.items()}
    slots = [
        (m._parameters, name, p)
        for m in module.modules()
        for name, p in m._parameters.items()
        if id(p) in stand_in
    ]
    try:
        for owner, name, p in slots:
            owner[name] = stand_in[id(p)]  # pyright: ignore[reportArgumentType]
        yield module
    finally:
        for owner, name, p in slots:
            owner[name] = p
