"""`anypo cite`: the papers of a method or of a run, of its pieces, and what of them was used."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from anypo import __version__
from anypo.cli.options import Flag, gather, parse
from anypo.core.explain import used
from anypo.core.papers import PAPER, bibtex, described, entry, escaped, link, papers

__all__ = ["Cite", "Cited", "cited", "collect", "entry", "link", "papers", "run", "used"]


@dataclass(frozen=True)
class Cite:
    """A bibliography of what methods or runs are made of: papers, pieces, and this library."""

    method: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="METHOD|RUN")]
    """names of methods, see anypo methods, or folders of runs: then the recipe is the run's own"""
    format: Literal["bibtex", "text", "json"] = "bibtex"
    """how it is printed"""
    json: Flag = False
    """print one JSON object, as --format json"""


def run(words: list[str]) -> int:
    """Print entries, then what was used as comments."""
    options = parse(Cite, gather(Cite, words), "cite")
    from anypo.cli.screen import cell, console, print_json

    found = [cited(name) for name in options.method]
    named, pieces = collect(found)
    if options.json or options.format == "json":
        names = [c.name for c in found]
        print_json({"methods": names, "papers": named, "pieces": pieces, "version": __version__})
        return 0
    text = (
        _text(found, named, pieces) if options.format == "text" else _bibtex(found, named, pieces)
    )
    screen = console(sys.stdout)
    for line in text:
        screen.print(cell(line), soft_wrap=True)
    return 0


@dataclass(frozen=True)
class Cited:
    """What is cited: a method, with its papers, and the recipe that was used."""

    name: str
    papers: dict[str, str]
    recipe: Any
    given: dict[str, str]


def cited(name: str) -> Cited:
    """A method by its name, or the recipe of a run's folder, as it was resolved."""
    from anypo import api

    folder = Path(name)
    if not (folder / "anypo.json").is_file():
        info = api.find(name).info
        return Cited(info.name, _named(info), info.build(), {})
    facts = json.loads((folder / "anypo.json").read_text("utf-8"))
    known = {i.name: i for i in api.methods()}
    method = str(facts.get("method", "recipe"))
    named = _named(known[method]) if method in known else {}
    given = {str(k): str(v) for k, v in facts.get("given", {}).items()}
    return Cited(method, named, api.load_recipe(facts["recipe"]), given)


def _named(info: Any) -> dict[str, str]:
    named = papers(info.paper, info.doc)
    return {**named, info.paper: info.title} if info.paper in named else named


def collect(found: Iterable[Cited]) -> tuple[dict[str, str], dict[str, str]]:
    """Paper → what it is called, each once: methods' first; and piece → its source."""
    named: dict[str, str] = {}
    pieces: dict[str, str] = {}
    for one in found:
        named.update({k: named.get(k) or v for k, v in one.papers.items()})
        pieces |= used(one.recipe)
    for piece, source in pieces.items():
        for paper, said in papers("", source).items() if PAPER.search(source) else ():
            if paper:
                named.setdefault(paper, f"{said}, as in the piece {piece}".lstrip(", "))
    return named, pieces


def _bibtex(found: list[Cited], named: dict[str, str], pieces: dict[str, str]) -> list[str]:
    this = {"title": "{anypo}: any policy, any policy optimization"}
    this["note"] = f"Version {escaped(__version__)}"
    lines = [*(entry(k, v) for k, v in named.items()), bibtex("anypo", this)]
    return lines + [f"% {line}" for line in _used(found, pieces)]


def _text(found: list[Cited], named: dict[str, str], pieces: dict[str, str]) -> list[str]:
    lines = [described(k, v) for k, v in named.items()]
    return [
        *lines,
        f"anypo: any policy, any policy optimization. Version {__version__}",
        "",
    ] + _used(found, pieces)


def _used(found: list[Cited], pieces: dict[str, str]) -> list[str]:
    names = ", ".join(one.name for one in found)
    lines = [f"Used: {names} of anypo {__version__}, which is"]
    lines += [f"  {name}{f': {source}' if source else ''}" for name, source in pieces.items()]
    changed = [f"{k} {v}" for one in found for k, v in one.given.items()]
    return [*lines, *([f"with {', '.join(changed)}"] if changed else [])]
