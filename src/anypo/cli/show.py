"""`anypo show`: one method, with its equations, its pieces and every field."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anypo.cli.options import Flag, gather, parse
from anypo.core.piece import widest


@dataclass(frozen=True)
class Show:
    """A method's docstring, its resolved recipe field by field, and what it needs."""

    method: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="METHOD")]
    """a method's name, see anypo methods; its arguments may be given as in train"""
    inline: Flag = False
    """also the code: the method's own, its pieces', and that of what they call"""
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
    (_print_json if options.json else _print)(method.info, chosen.recipe, options.inline)
    return 0


def needs(recipe: Any) -> dict[str, Any]:
    """Columns that a recipe wants from the model in any phase, and how far it couples steps."""
    stages = recipe.stages
    return {
        "live": sorted({c for s in stages for o in s.objectives for c in o.live}),
        "frozen": sorted({c for s in stages for c in s.frozen_needs}),
        "references": sorted(recipe.references),
        "heads": recipe.modules(),
        "couples": widest(s.couples for s in stages),
        "facts": sorted(recipe.facts),
    }


def said_needs(recipe: Any) -> list[tuple[str, str]]:
    """The same in words, a row for each that there is something to say of."""
    wanted = needs(recipe)
    rows = [
        ("live columns", ", ".join(wanted["live"]) or "none"),
        ("frozen columns", ", ".join(wanted["frozen"]) or "none"),
        ("references", ", ".join(wanted["references"])),
        ("heads", ", ".join(wanted["heads"])),
        ("facts", ", ".join(wanted["facts"])),
        ("coupling", f"one term sees its {wanted['couples']}"),
    ]
    return [(name, text) for name, text in rows if text]


def also_called(info: Any) -> dict[str, list[str]]:
    """Acronym → slugs of the other methods that go by it; for a method that is called so itself."""
    from anypo import api

    rivals = api.namesakes(info.name)
    mine = {info.slug, *info.aliases, *(a.replace("_", "-") for a in info.aliases)}
    others = [n.slug + ("" if n.here else " (not here yet)") for n in rivals if n.slug not in mine]
    return {info.name.upper().replace("_", "-"): others} if others else {}


def evidence(info: Any) -> list[str]:
    """A sentence for every file of reference numbers, or one that says there is none."""
    from anypo.verify.faithfulness import proofs

    if info.kind == "sketch":
        return ["a sketch: made from an abstract alone, its equations are not public"]
    return [
        f"{p.file}, {p.cases} case{'s' * (p.cases != '1')}"
        + (f", error ≤ {p.within}" if p.within else ", not run by anypo verify")
        + (f": {p.failed} FAILED" if p.failed else "")
        for p in proofs().get(info.name, ())
    ] or ["unverified: no file of reference numbers"]


def prose(doc: str) -> str:
    """A docstring whose paragraphs are single lines, for a terminal of any width."""
    return re.sub(r"(?<!\n)\n(?!\n|[A-Z]\w+:)", " ", doc)


def _print_json(info: Any, recipe: Any, inline: bool) -> None:
    from anypo.cli.inline import sources
    from anypo.cli.recipes import verified
    from anypo.cli.screen import print_json
    from anypo.core.dump import dump
    from anypo.core.explain import explained
    from anypo.core.papers import papers

    facts = {k: getattr(info, k) for k in ("name", "title", "paper", "domain", "kind", "doc")}
    found = {
        **facts,
        "papers": [*papers(info.paper, info.doc)],
        "verified": verified(info),
        "evidence": evidence(info),
        "also_called": also_called(info),
        "recipe": dump(recipe),
        "pieces": [dict(zip(("axis", "piece", "formula", "says"), p)) for p in explained(recipe)],
        "needs": needs(recipe),
    }
    print_json({**found, "sources": sources(info, recipe)} if inline else found)


def _print(info: Any, recipe: Any, inline: bool) -> None:
    from anypo.cli.screen import cell, console, grid, joined, table
    from anypo.core.explain import explained, fields_of
    from anypo.core.papers import papers

    screen = console(sys.stdout)
    screen.print(cell(f"{info.title}   {info.name}", style="bold"))
    facts = [
        ("kind", f"{info.kind}, domain {info.domain}"),
        ("papers", ", ".join(papers(info.paper, info.doc))),
        *(("evidence", text) for text in evidence(info)),
        *(("also", ", ".join(info.aliases)) for _ in info.aliases[:1]),
        *(("note", f"also called {a}: {', '.join(o)}") for a, o in also_called(info).items()),
    ]
    screen.print(grid(facts))
    screen.print()
    screen.print(cell(prose(info.doc)))
    screen.print()
    pieces = [
        (axis, name, joined(says, formula.replace("`", "")))
        for axis, name, formula, says in explained(recipe)
    ]
    screen.print(table(("axis", "piece", "what it does, and its formula"), pieces, "Pieces"))
    screen.print(grid(said_needs(recipe)))
    screen.print()
    screen.print(table(("axis", "field", "value"), fields_of(recipe), "Recipe, field by field"))
    if inline:
        _print_sources(screen, info, recipe)


def _print_sources(screen: Any, info: Any, recipe: Any) -> None:
    from anypo.cli.inline import sources
    from anypo.cli.screen import cell, python

    for place, text in sources(info, recipe).items():
        screen.print()
        screen.print(cell(f"── {place}", style="bold"))
        screen.print()
        screen.print(python(screen, text), soft_wrap=True)
