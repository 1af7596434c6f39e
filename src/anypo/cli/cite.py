"""`anypo cite`: the papers of a method, and what of them was used."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anypo import __version__
from anypo.cli.options import Flag, gather, parse
from anypo.core.papers import PAPER, link, papers


@dataclass(frozen=True)
class Cite:
    """BibTeX entries for the papers that a method names, and the pieces that it is made of."""

    method: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="METHOD")]
    """a method's name, see anypo methods"""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print entries, then what was used as comments."""
    options = parse(Cite, gather(Cite, words), "cite")
    from anypo import api
    from anypo.cli.screen import cell, console, print_json

    info = api.find(options.method).info
    named, pieces = papers(info.paper, info.doc), used(info.build())
    named[info.paper] = info.title
    if options.json:
        print_json({"papers": named, "pieces": pieces, "version": __version__})
        return 0
    screen = console(sys.stdout)
    for paper, note in named.items():
        screen.print(cell(entry(paper, note)), soft_wrap=True)
    screen.print(cell(f"% Used: {info.name} of anypo {__version__}, which is"), soft_wrap=True)
    for name, source in pieces.items():
        screen.print(cell(f"%   {name}{f': {source}' if source else ''}"), soft_wrap=True)
    return 0


def used(recipe: Any) -> dict[str, str]:
    """Piece → what it names as its source, for every piece of a recipe."""
    from anypo.core.combine import Combined
    from anypo.core.explain import further, on_axes, reference

    chosen = [*on_axes(recipe), *further(recipe)]
    return {type(p).__name__: reference(p) for p in chosen if not isinstance(p, Combined)}


def entry(paper: str, note: str) -> str:
    """A BibTeX entry with what is certain: the identifier, and how the paper is called here."""
    doi = {"doi": paper} if paper.startswith("10.") else {}
    arxiv = {"eprint": paper, "archivePrefix": "arXiv"} if PAPER.fullmatch(paper) else {}
    fields = {**(doi or arxiv or {"howpublished": paper}), "url": link(paper), "note": note}
    key = "".join(c if c.isalnum() or c in ".-" else "-" for c in paper)
    lines = [f"  {k} = {{{v}}}" for k, v in fields.items() if v]
    return "@misc{" + key + ",\n" + ",\n".join(lines) + "\n}"
