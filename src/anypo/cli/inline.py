"""The source of a method on one page: its function, its pieces, and what those call.

What is left out is noise for a reader with the paper at hand: refusals of bad values, declarations
to the engine, which `anypo show` prints in words, and an optimizer or a likelihood that is the same
as in plain REINFORCE.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from anypo.core.explain import further, on_axes
from anypo.core.method import MethodInfo
from anypo.core.recipe import Recipe

ROOMS = ("anypo.recipes", "anypo.pieces", "anypo.math", "anypo.core.neutral", "anypo.core.combine")
"""Where equations stand; what else is called (`batch.mean`, torch) may be taken for granted."""

NOISE = frozenset({"__post_init__", "check", "needs", "couples", "coefficient", "of"})
"""Parts of a piece that are no equation."""

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Place = tuple[ModuleType, str]


def sources(info: MethodInfo, recipe: Recipe) -> dict[str, str]:
    """`file: name` → code: the method and those it derives from, its pieces, their helpers."""
    start = (sys.modules[info.build.__module__], info.build.__name__)
    plain = (Recipe().likelihood, Recipe().update)
    pieces = [p for p in (*on_axes(recipe), *further(recipe)) if p not in plain]
    classes = [(sys.modules[type(p).__module__], type(p).__name__) for p in pieces]
    found: dict[Place, None] = {}
    _collect([start], ("anypo.recipes",), found)
    _collect(classes, ROOMS[1:], found)
    return {f"{module.__name__.replace('.', '/')}.py: {n}": code(module, n) for module, n in found}


def _collect(places: Iterable[Place], rooms: tuple[str, ...], found: dict[Place, None]) -> None:
    """Add the places; after each of them every definition in the rooms that its code leads to."""
    for module, name in places:
        if (module, name) not in found and name in definitions(module):
            found[module, name] = None
            inside = (p for p in _named(module, name) if p[0].__name__.startswith(rooms))
            _collect(inside, rooms, found)


def _named(module: ModuleType, name: str) -> Iterator[Place]:
    """Where the names stand that a definition uses."""
    kept = [n for part in _kept(definitions(module)[name]) for n in ast.walk(part)]
    for node in kept:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = getattr(module, node.value.id, None)
            if isinstance(owner, ModuleType):
                yield owner, node.attr
        elif isinstance(node, ast.Name) and node.id in definitions(module):
            yield module, node.id
        elif isinstance(node, ast.Name) and (value := getattr(module, node.id, None)) is not None:
            home = sys.modules.get(getattr(value, "__module__", None) or "")
            if home is not None and hasattr(value, "__name__"):
                yield home, value.__name__


@functools.cache
def definitions(module: ModuleType) -> dict[str, Definition]:
    """What a module defines at its top: functions, classes, constants."""
    found: dict[str, Definition] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {t.id: node for t in targets if isinstance(t, ast.Name)}
    return found


def code(module: ModuleType, name: str) -> str:
    """The text of a definition, without noise."""
    node, lines = definitions(module)[name], inspect.getsource(module).splitlines()
    dropped = {i for part in ast.walk(node) if _noisy(part) for i in _span(part)}
    return _tidy(lines[i - 1] for i in _span(node) if i not in dropped)


def _kept(node: Definition) -> list[ast.AST]:
    if not isinstance(node, ast.ClassDef):
        return [node]
    return [*node.decorator_list, *(part for part in node.body if not _noisy(part))]


def _noisy(node: Any) -> bool:
    """A declaration, or a refusal: `if …: raise …`."""
    if isinstance(node, ast.If):
        return not node.orelse and all(isinstance(part, ast.Raise) for part in node.body)
    return isinstance(node, ast.FunctionDef) and node.name in NOISE


def _first(node: Any) -> int:
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])


def _span(node: Any) -> range:
    return range(_first(node), node.end_lineno + 1)


def _tidy(lines: Iterable[str]) -> str:
    """Without remarks to tools, and without the blank lines that something left behind."""
    bare = "\n".join(re.sub(r"\s*# (pyright|noqa|type):.*", "", line) for line in lines)
    return re.sub(r"\n{3,}", "\n\n", bare).strip("\n")
