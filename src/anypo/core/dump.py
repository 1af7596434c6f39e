"""Recipes as plain data: `dump` to JSON-able dicts, `load` from them, `rows` for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from anypo.core.errors import UsageError, nearest
from anypo.core.piece import Piece
from anypo.core.recipe import Objective, Phase, Recipe, rebuilt
from anypo.core.schedule import Schedule

STRUCTURES = {"Recipe": Recipe, "Objective": Objective, "Phase": Phase}


def dump(node: Any) -> Any:
    """A JSON-able description: dataclasses become `{"piece": name, field: value, …}`."""
    if isinstance(node, (Piece, Schedule, *STRUCTURES.values())):
        values = {f.name: dump(getattr(node, f.name)) for f in fields(node)}  # pyright: ignore
        return {"piece": type(node).__name__, **values}
    if isinstance(node, Mapping):
        return {str(k): dump(v) for k, v in node.items()}
    if isinstance(node, (tuple, list)):
        return [dump(v) for v in node]
    if isinstance(node, float) and not math.isfinite(node):
        return {"float": str(node)}
    return node


def load(data: Any, known: Mapping[str, type[Any]]) -> Any:
    """The value that `dump` described; `known` are the discovered pieces, nothing else is made."""
    if isinstance(data, list):
        return tuple(load(v, known) for v in data)
    if not isinstance(data, Mapping):
        return data
    if set(data) == {"float"}:
        return float(data["float"])
    if "piece" not in data:
        return {k: load(v, known) for k, v in data.items()}
    names = {**known, **STRUCTURES}
    name = data["piece"]
    if name not in names:
        raise UsageError(f"the stored recipe names an unknown piece {name!r}{nearest(name, names)}")
    values = {k: load(v, known) for k, v in data.items() if k != "piece"}
    if unknown := set(values) - {f.name for f in fields(names[name])}:
        raise UsageError(f"the stored {name} has unknown fields {', '.join(sorted(unknown))}")
    return rebuilt(names[name], values)


def rows(node: Any, path: str = "") -> dict[str, str]:
    """Dotted path → text of every field, for tables and differences between recipes."""
    if isinstance(node, (Piece, Schedule, *STRUCTURES.values())):
        out = {} if isinstance(node, Recipe) else {path: type(node).__name__}
        for f in fields(node):  # pyright: ignore[reportArgumentType]
            out |= rows(getattr(node, f.name), f"{path}.{f.name}" if path else f.name)
        return out
    if isinstance(node, Mapping):
        return {k: v for key, x in node.items() for k, v in rows(x, f"{path}.{key}").items()}
    if isinstance(node, tuple) and any(isinstance(v, (Piece, Objective, Phase)) for v in node):
        return {k: v for i, x in enumerate(node) for k, v in rows(x, f"{path}.{i}").items()}
    return {path: repr(node)}
