"""`anypo methods`: what there is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

from anypo.cli.options import Flag, gather, parse, said
from anypo.core.errors import UsageError, nearest

Entry = dict[str, Any]


@dataclass(frozen=True)
class Methods:
    """List the methods, with the axes in which each differs from plain REINFORCE."""

    axis: Annotated[str, said("only those that differ on this axis: D, or ratio", "AXIS")] = ""
    piece: Annotated[str, said("only those with this piece, such as Clip", "PIECE")] = ""
    domain: Annotated[
        str, said("only those for this domain: language, generator, control, any", "DOMAIN")
    ] = ""
    json: Flag = False
    """print a JSON list instead of a table"""


def run(words: list[str]) -> int:
    """Print one row per method."""
    options = parse(Methods, gather(Methods, words), "methods")
    from anypo.cli.recipes import AXES, axis_of, catalogue, pieces
    from anypo.cli.screen import console, print_json, table

    entries = catalogue()
    if options.axis:
        axis = axis_of(options.axis)
        entries = [e for e in entries if axis in e["axes"]]
    entries = _having(entries, options.piece, pieces, "piece")
    entries = _having(entries, options.domain, lambda e: [e["domain"]], "domain")
    if options.json:
        print_json(entries)
        return 0
    rows = [
        (e["name"], e["title"], e["paper"], e["domain"], " ".join(map(AXES.get, e["axes"])))  # pyright: ignore
        for e in entries
    ]
    screen = console(sys.stdout)
    screen.print(table(("name", "title", "paper", "domain", "differs in"), rows))
    screen.print("  ".join(f"{letter} {axis}" for axis, letter in AXES.items()))
    screen.print("anypo show NAME prints a method piece by piece")
    return 0


def _having(entries: list[Entry], word: str, facts: Any, what: str) -> list[Entry]:
    if not word:
        return entries
    known = sorted({fact for e in entries for fact in facts(e)})
    exact = {k.lower(): k for k in known}
    if word.lower() not in exact:
        raise UsageError(f"no method has the {what} {word!r}{nearest(word, known)}")
    return [e for e in entries if exact[word.lower()] in facts(e)]
