"""A recipe as a command line: the method and the options that give exactly it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import anypo.recipes
from anypo.core import discover
from anypo.core.errors import UsageError
from anypo.core.method import Method
from anypo.core.piece import Piece
from anypo.core.recipe import Objective, Recipe

STRUCTURE = 1000
"""What another piece counts for, against fields that differ: no option can mend it."""


@dataclass(frozen=True)
class Expression:
    """A method with arguments of its own and overrides of its recipe's fields."""

    method: str
    arguments: Mapping[str, Any]
    overrides: Mapping[str, Any]

    @property
    def options(self) -> dict[str, str]:
        """Option → text, as `anypo train` takes them."""
        own = {k: written(v) for k, v in self.arguments.items()}
        return {**own, **{f"recipe.{k}": written(v) for k, v in self.overrides.items()}}


def express(
    target: Recipe, names: Iterable[str], hints: Mapping[str, Any]
) -> tuple[Expression, Recipe]:
    """The nearest that a command line comes to a recipe, and what that resolves to.

    Each of the named methods is tried, with those of the hinted arguments that bring it nearer; the
    fields that are left are overridden. The first of the best methods wins.
    """
    known = discover.methods(anypo.recipes)
    tried = [_nearest(known[name], target, hints) for name in names if name in known]
    _, method, arguments = min(tried, key=lambda t: t[0])
    made = method(**arguments)
    overrides = _overrides(leaves(made), leaves(target))
    for path, value in overrides.items():
        made = made.set(path, value)
    own = {k: v for k, v in arguments.items() if v != method.info.parameters[k]}
    return Expression(method.info.name, own, overrides), made


def _overrides(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that differ, of pieces that do not."""
    other = [k for k, v in here.items() if isinstance(v, type) and there.get(k) is not v]
    return {
        path: there[path]
        for path, value in here.items()
        if path in there
        and not isinstance(value, type)
        and _differ(value, there[path])
        and not any(path.startswith(f"{k}.") for k in other)
        and written(there[path])  # a tuple of no pieces has no text
    }


def _nearest(
    method: Method, target: Recipe, hints: Mapping[str, Any]
) -> tuple[int, Method, dict[str, Any]]:
    chosen: dict[str, Any] = {}
    open_, best = {k for k in hints if k in method.info.parameters}, _distance(method, {}, target)
    while open_:
        trials = {k: _distance(method, {**chosen, k: hints[k]}, target) for k in sorted(open_)}
        name = min(trials, key=lambda k: trials[k])
        if trials[name] >= best:
            break
        best = trials[name]
        chosen[name] = hints[name]
        open_.remove(name)
    return best, method, chosen


def _distance(method: Method, arguments: Mapping[str, Any], target: Recipe) -> int:
    try:
        here, there = leaves(method(**arguments)), leaves(target)
    except UsageError:
        return 1000 * STRUCTURE
    others = set(here) ^ set(there)
    differ = [k for k in set(here) & set(there) if _differ(here[k], there[k])]
    pieces = [k for k in differ if isinstance(here[k], type)]
    return STRUCTURE * (len(others) + len(pieces)) + len(differ)


def _differ(a: Any, b: Any) -> bool:
    alike = type(a) is type(b) or {type(a), type(b)} == {int, float}
    return not alike or a != b


def leaves(node: Any, path: str = "") -> dict[str, Any]:
    """Dotted path → value of every field of a recipe; of a piece itself, its class."""
    if isinstance(node, (Recipe, Piece, Objective)) or is_dataclass(node):
        found: dict[str, Any] = {} if isinstance(node, Recipe) else {path: type(node)}
        for f in fields(node):  # pyright: ignore[reportArgumentType]
            inner = f"{path}.{f.name}" if path else f.name
            found |= leaves(getattr(node, f.name), inner)
        return found
    if isinstance(node, tuple) and any(is_dataclass(v) for v in node):
        return {k: v for i, x in enumerate(node) for k, v in leaves(x, f"{path}.{i}").items()}
    if isinstance(node, Mapping) and node:
        return {k: v for key, x in node.items() for k, v in leaves(x, f"{path}.{key}").items()}
    return {path: node}


def written(value: Any) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(map(written, value))
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 1e6 else repr(value)
    return str(value)
