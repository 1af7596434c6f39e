"""`anypo show`: one method, with its equations, its pieces and every field."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anypo.cli.options import Flag, gather, parse


@dataclass(frozen=True)
class Show:
    """A method's docstring, its resolved recipe field by field, and what it needs."""

    method: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="METHOD")]
    """a method's name, see anypo methods; its arguments may be given as in train"""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print a method."""
    given = gather(Show, words)
    if "method" not in given:
        parse(Show, given, "show")
    from anypo import api
    from anypo.cli import arguments

    method = api.find(given["method"])
    cls: Any = arguments.with_arguments(Show, method.info)
    also = arguments.own_options(method.info)
    options = parse(cls, given, f"show {method.info.name}", ("recipe.",), also)
    chosen = arguments.choose(method, given)
    (_print_json if options.json else _print)(method.info, chosen.recipe)
    return 0


def needs(recipe: Any) -> dict[str, Any]:
    """Columns that a recipe wants from the model, and how far its objectives couple steps."""
    live = sorted(frozenset[str]().union(*(o.live for o in recipe.objectives)))
    return {
        "live": live,
        "frozen": sorted(recipe.frozen_needs),
        "references": sorted(recipe.references),
        "heads": recipe.modules(),
        "couples": recipe.couples,
    }


def prose(doc: str) -> str:
    """A docstring whose paragraphs are single lines, for a terminal of any width."""
    return re.sub(r"(?<!\n)\n(?!\n|[A-Z]\w+:)", " ", doc)


def _print_json(info: Any, recipe: Any) -> None:
    from anypo.cli.screen import print_json
    from anypo.core.dump import dump

    facts = {k: getattr(info, k) for k in ("name", "title", "paper", "domain", "kind", "doc")}
    print_json({**facts, "recipe": dump(recipe), "needs": needs(recipe)})


def _print(info: Any, recipe: Any) -> None:
    from anypo.cli.recipes import AXES, fields_of, first_line, formula, parts
    from anypo.cli.screen import cell, console, table

    screen = console(sys.stdout)
    screen.print(cell(f"{info.title}   {info.name}", style="bold"))
    also = f"   also: {', '.join(info.aliases)}" if info.aliases else ""
    screen.print(cell(f"paper {info.paper}   domain {info.domain}{also}"))
    screen.print()
    screen.print(cell(prose(info.doc)))
    screen.print()
    screen.print(table(("axis", "field", "value"), fields_of(recipe), "Recipe, field by field"))
    screen.print()
    pieces = [(AXES[a], p) for a in AXES for p in parts(getattr(recipe, a))]
    lines = [(letter, type(p).__name__, first_line(p), formula(p)) for letter, p in pieces]
    screen.print(table(("axis", "piece", "what it does", "formula"), lines, "Pieces"))
    screen.print()
    wanted = needs(recipe)
    screen.print(f"live columns:   {', '.join(wanted['live'])}")
    screen.print(f"frozen columns: {', '.join(wanted['frozen']) or 'none'}")
    if wanted["heads"]:
        screen.print(f"heads:          {', '.join(wanted['heads'])}")
    screen.print(f"coupling:       one term sees its {wanted['couples']}")
