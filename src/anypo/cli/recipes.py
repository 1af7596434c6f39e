"""The catalogue as data for a person: which axes differ, which pieces, how far to be trusted."""

from __future__ import annotations

from typing import Any

from anypo import api
from anypo.core.dump import dump
from anypo.core.errors import UsageError, nearest
from anypo.core.explain import AXES, further, parts
from anypo.core.method import MethodInfo
from anypo.core.recipe import Recipe
from anypo.verify.faithfulness import agrees, proofs


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


def pieces(entry: dict[str, Any]) -> list[str]:
    """Names of the pieces of a catalogue's entry."""
    return [name for names in entry["axes"].values() for name in names] + entry["further"]
