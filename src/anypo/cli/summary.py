"""`anypo methods --summary`: the numbers by which the catalogue is judged, counted by looking."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import anypo.core
import anypo.pieces
from anypo import api
from anypo.cli.screen import print_json, table
from anypo.core import discover
from anypo.core.combine import Combined
from anypo.core.explain import further, on_axes
from anypo.core.method import MethodInfo
from anypo.core.piece import Piece
from anypo.core.recipe import Recipe


def all_pieces() -> list[str]:
    """Names of the pieces that a recipe can be made of, combinators left out."""
    known = discover.parts(anypo.core, anypo.pieces).items()
    return sorted(
        name
        for name, cls in known
        if issubclass(cls, Piece) and not issubclass(cls, Combined) and not inspect.isabstract(cls)
    )


def used(info: MethodInfo) -> set[str]:
    """Pieces of a method as it is by default, and those that its function may put there."""
    recipe = info.build()
    here = {type(p).__name__ for p in (*on_axes(recipe), *further(recipe))}
    return here | {*info.build.__code__.co_names}


def escapes(recipe: Recipe) -> bool:
    """Whether some objective is a free function, `Objective(loss=fn)`, instead of pieces."""
    objectives = [o for stage in recipe.stages for o in stage.objectives]
    return any(callable(vars(o).get("loss")) for o in objectives)


def summary(entries: list[dict[str, Any]], infos: Iterable[MethodInfo]) -> dict[str, Any]:
    """The numbers, without sketches in any of them but their own."""
    real = [info for info in infos if info.kind != "sketch"]
    users = {name: [i.name for i in real if name in used(i)] for name in all_pieces()}
    counted = [e for e in entries if e["kind"] != "sketch"]
    return {
        "recipes": len(counted),
        "systems": sum(e["kind"] == "system" for e in counted),
        "verified": sum(e["verified"] for e in counted),
        "pieces": len(users),
        "used_by_one": {name: by[0] for name, by in users.items() if len(by) == 1},
        "used_by_none": [name for name, by in users.items() if not by],
        "escape_hatches": [i.name for i in real if escapes(i.build())],
        "sketches": [e["name"] for e in entries if e["kind"] == "sketch"],
    }


def print_summary(screen: Any, entries: list[dict[str, Any]], as_json: bool) -> None:
    """The numbers, and by name what they count where it is few."""
    found = summary(entries, api.methods())
    if as_json:
        print_json(found)
        return
    single = ", ".join(f"{name} ({by})" for name, by in found["used_by_one"].items())
    share = len(found["used_by_one"]) / max(found["pieces"], 1)
    named = {k: ", ".join(found[k]) for k in ("used_by_none", "escape_hatches", "sketches")}
    rows = [
        ("recipes", found["recipes"], "sketches left out"),
        ("  of which systems", found["systems"], "their sampling names a program"),
        ("  of which verified", found["verified"], "they agree with reference numbers"),
        ("pieces", found["pieces"], "combinators left out"),
        ("  used by one recipe", len(found["used_by_one"]), f"{share:.0%}: {single}"),
        ("  used by sketches alone", len(found["used_by_none"]), named["used_by_none"]),
        ("escape hatches", len(found["escape_hatches"]), named["escape_hatches"]),
        ("sketches", len(found["sketches"]), named["sketches"] or "known from an abstract alone"),
    ]
    screen.print(table(("", "number", ""), rows, right=("number",)))
