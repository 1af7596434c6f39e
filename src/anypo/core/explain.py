"""Recipes for a person: the pieces of a recipe, what each does, its formula and its source."""

from __future__ import annotations

import inspect
import re
from typing import Any

from anypo.core import recipe as core
from anypo.core.combine import Combined
from anypo.core.dump import rows
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe

AXES: dict[str, str] = dict(zip(core.AXES, "ABCDEFGHI", strict=True))
"""Axis → the letter that catalogues give it."""


def further(recipe: Recipe) -> list[Piece]:
    """The pieces of a recipe's further objectives and of its later phases."""
    also = [o for stage in recipe.stages for o in stage.also]
    beside = [p for o in also for p in (*o.pieces, o.aggregate, o.likelihood)]
    later = [getattr(stage, a) for stage in recipe.stages[1:] for a in AXES]
    return parts((*beside, *later))


def parts(value: Any) -> list[Piece]:
    """The pieces on an axis, with those inside combinations."""
    if isinstance(value, tuple):
        return [p for v in value for p in parts(v)]
    inner = [p for v in vars(value).values() if isinstance(v, Piece) for p in parts(v)]
    return [value, *inner] if isinstance(value, Piece) else inner


def fields_of(recipe: Recipe) -> list[tuple[str, str, str]]:
    """Axis letter, path and value of every field of a recipe."""
    return [(AXES.get(path.split(".")[0], ""), path, text) for path, text in rows(recipe).items()]


def on_axes(recipe: Recipe) -> list[Piece]:
    """The pieces, axis by axis."""
    return parts(tuple(getattr(recipe, a) for a in AXES))


def explained(recipe: Recipe) -> list[tuple[str, str, str, str]]:
    """Axis letter, name, formula and first sentence of every piece, axis by axis.

    Pieces of further objectives and of later phases follow, where they are others.
    """
    own = on_axes(recipe)
    seen = {type(p) for p in own}
    shown = own + [p for p in further(recipe) if type(p) not in seen]
    rows = [(AXES[p.axis], type(p).__name__, formula(p), first_line(p)) for p in shown]
    return list(dict.fromkeys(rows))


def first_line(piece: Piece) -> str:
    """What a piece does, as its docstring begins."""
    return _paragraphs(piece)[0]


def formula(piece: Piece) -> str:
    """The paragraph of a docstring with its first formula: code with an operator in it.

    Empty where there is none, or where the first sentence has it.
    """
    for i, text in enumerate(_paragraphs(piece)):
        code = re.findall(r"(?<!`)`([^`]+)`(?!`)", text.partition("Parameters: ")[0])
        if any(re.search(r"[=·−⇔]|\w\(", c) and '"' not in c for c in code):
            return text if i else ""
    return ""


def _paragraphs(piece: Piece) -> list[str]:
    doc = (inspect.getdoc(type(piece)) or "").partition("\nParameters\n")[0]
    return [" ".join(text.split()) for text in doc.split("\n\n")]


def reference(piece: Piece) -> str:
    """What a piece's docstring names as its source."""
    doc = " ".join((inspect.getdoc(type(piece)) or "").split())
    return doc.rpartition("Reference: ")[2].rstrip(".") if "Reference: " in doc else ""


def used(recipe: Recipe) -> dict[str, str]:
    """Piece → what it names as its source, for every piece of a recipe."""
    chosen = [*on_axes(recipe), *further(recipe)]
    return {type(p).__name__: reference(p) for p in chosen if not isinstance(p, Combined)}
