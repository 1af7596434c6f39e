"""`anypo cite`: the papers of a method, and what of them was used."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from anypo import __version__
from anypo.cli.options import Flag, gather, parse
from anypo.core.explain import used
from anypo.core.papers import entry, link, papers

__all__ = ["Cite", "entry", "link", "papers", "run", "used"]


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
