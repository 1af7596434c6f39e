"""Recipes as data for a person: which axes differ, which pieces, which fields."""

from __future__ import annotations

import inspect
import re
from typing import Any

from anypo import api
from anypo.core import recipe as core
from anypo.core.dump import dump, rows
from anypo.core.errors import UsageError, nearest
from anypo.core.method import MethodInfo
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe
from anypo.verify.faithfulness import agrees, proofs

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
            "slug": info.slug,
            "title": info.title,
            "paper": info.paper,
            "domain": info.domain,
            "kind": info.kind,
            "verified": verified(info),
            "aliases": list(info.aliases),
            "axes": differing(recipe := info.build()),
            "further": sorted({type(p).__name__ for p in further(recipe)}),
        }
        for info in api.methods()
    ]


def verified(info: MethodInfo) -> bool:
    """Whether a method agrees with its reference numbers; a sketch may never be said to."""
    return info.kind != "sketch" and agrees(proofs().get(info.name, ()))


def status(entry: dict[str, Any]) -> str:
    """How far a method may be trusted, in a word: a sketch is known from its abstract alone."""
    if entry["kind"] == "sketch":
        return "sketch"
    checked = "verified" if entry["verified"] else "unverified"
    return checked if entry["kind"] == "recipe" else f"{entry['kind']}, {checked}"


def differing(recipe: Recipe) -> dict[str, list[str]]:
    """Axis → names of its pieces, where a recipe is not `Recipe()`."""
    plain = Recipe()
    axes = [a for a in AXES if dump(getattr(recipe, a)) != dump(getattr(plain, a))]
    return {a: [type(p).__name__ for p in parts(getattr(recipe, a))] for a in axes}


def further(recipe: Recipe) -> list[Piece]:
    """The pieces of a recipe's further objectives and of its later phases."""
    also = [o for stage in recipe.stages for o in stage.also]
    beside = [p for o in also for p in (*o.pieces, o.aggregate, o.likelihood)]
    later = [getattr(stage, a) for stage in recipe.stages[1:] for a in AXES]
    return parts((*beside, *later))


def pieces(entry: dict[str, Any]) -> list[str]:
    """Names of the pieces of a catalogue's entry."""
    return [name for names in entry["axes"].values() for name in names] + entry["further"]


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
