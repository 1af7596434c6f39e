"""Recipes as data for a person: which axes differ, which pieces, which fields."""

from __future__ import annotations

import inspect
import re
from typing import Any

from anypo import api
from anypo.core import recipe as core
from anypo.core.dump import dump, rows
from anypo.core.errors import UsageError, nearest
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe

AXES: dict[str, str] = dict(zip(core.AXES, "ABCDEFGHI", strict=True))
"""Axis → the letter that catalogues give it."""


def axis_of(word: str) -> str:
    """The axis of a letter or a name."""
    for axis, letter in AXES.items():
        if word.lower() == axis or word.upper() == letter:
            return axis
    known = ", ".join(f"{letter} {axis}" for axis, letter in AXES.items())
    raise UsageError(f"there is no axis {word!r}{nearest(word, AXES)} (axes: {known})")


def catalogue() -> list[dict[str, Any]]:
    """Every method: its facts, and axis → pieces where it differs from plain REINFORCE."""
    return [
        {
            "name": info.name,
            "title": info.title,
            "paper": info.paper,
            "domain": info.domain,
            "kind": info.kind,
            "aliases": list(info.aliases),
            "axes": differing(info.build()),
        }
        for info in api.methods()
    ]


def differing(recipe: Recipe) -> dict[str, list[str]]:
    """Axis → names of its pieces, where a recipe is not `Recipe()`."""
    plain = Recipe()
    axes = [a for a in AXES if dump(getattr(recipe, a)) != dump(getattr(plain, a))]
    return {a: [type(p).__name__ for p in parts(getattr(recipe, a))] for a in axes}


def pieces(entry: dict[str, Any]) -> list[str]:
    """Names of the pieces of a catalogue's entry."""
    return [name for names in entry["axes"].values() for name in names]


def parts(value: Any) -> list[Piece]:
    """The pieces on an axis, with those inside combinations."""
    if isinstance(value, tuple):
        return [p for v in value for p in parts(v)]
    inner = [p for v in vars(value).values() if isinstance(v, Piece) for p in parts(v)]
    return [value, *inner] if isinstance(value, Piece) else inner


def fields_of(recipe: Recipe) -> list[tuple[str, str, str]]:
    """Axis letter, path and value of every field of a recipe."""
    return [(AXES.get(path.split(".")[0], ""), path, text) for path, text in rows(recipe).items()]


def first_line(piece: Piece) -> str:
    """What a piece does, as its docstring begins."""
    head = (inspect.getdoc(type(piece)) or "").split("\n\n")[0]
    return " ".join(head.split())


def formula(piece: Piece) -> str:
    """The first formula of a piece's docstring: code with an operator in it; or nothing."""
    doc = (inspect.getdoc(type(piece)) or "").partition("\nParameters")[0]
    code = [" ".join(c.split()) for c in re.findall(r"(?<!`)`([^`]+)`(?!`)", doc)]
    found = (c for c in code if re.search(r"[=·−⇔]|\w\(", c) and '"' not in c)
    return next(found, "")
