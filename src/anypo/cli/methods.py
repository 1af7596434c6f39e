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
    kind: Annotated[str, said("only this kind: recipe, system or sketch", "KIND")] = ""
    verified: Flag = False
    """only those that agree with a file of reference numbers"""
    unverified: Flag = False
    """only those without one"""
    summary: Flag = False
    """how many recipes, pieces and sketches there are, instead of a list"""
    json: Flag = False
    """print JSON instead of a table"""


def run(words: list[str]) -> int:
    """Print one row per method, or the numbers of them all."""
    options = parse(Methods, gather(Methods, words), "methods")
    from anypo.cli.recipes import catalogue
    from anypo.cli.screen import console, print_json

    screen = console(sys.stdout)
    entries = catalogue()
    if options.summary:
        from anypo.cli.summary import print_summary

        if options != Methods(summary=True, json=options.json):
            raise UsageError("--summary counts all methods: leave the filters out")
        print_summary(screen, entries, options.json)
        return 0
    entries = chosen(entries, options)
    if options.json:
        print_json(entries)
    else:
        _print(screen, entries)
    return 0


def chosen(entries: list[Entry], options: Methods) -> list[Entry]:
    """The entries that pass every filter."""
    from anypo.cli.recipes import axis_of, pieces

    if options.verified and options.unverified:
        raise UsageError("no method is both --verified and --unverified: keep one of them")
    if options.axis:
        axis = axis_of(options.axis)
        entries = [e for e in entries if axis in e["axes"]]
    entries = _having(entries, options.piece, pieces, "piece")
    entries = _having(entries, options.domain, lambda e: [e["domain"]], "domain")
    if options.kind not in ("", "recipe", "system", "sketch"):
        raise UsageError(f"there is no kind {options.kind!r} (kinds: recipe, system, sketch)")
    if options.kind:
        entries = [e for e in entries if e["kind"] == options.kind]
    if options.verified or options.unverified:
        entries = [e for e in entries if e["verified"] == options.verified]
    return entries


def _having(entries: list[Entry], word: str, facts: Any, what: str) -> list[Entry]:
    if not word:
        return entries
    known = sorted({fact for e in entries for fact in facts(e)})
    exact = {k.lower(): k for k in known}
    if word.lower() not in exact:
        raise UsageError(f"no method has the {what} {word!r}{nearest(word, known)}")
    return [e for e in entries if exact[word.lower()] in facts(e)]


def _print(screen: Any, entries: list[Entry]) -> None:
    from anypo.cli.recipes import status
    from anypo.cli.screen import table
    from anypo.core.explain import AXES

    rows = [
        (e["name"], e["title"], e["paper"], e["domain"], letters(e), status(e)) for e in entries
    ]
    screen.print(table(("name", "title", "paper", "domain", "differs in", "status"), rows))
    screen.print(counted(entries))
    screen.print("  ".join(f"{letter} {axis}" for axis, letter in AXES.items()))
    screen.print("anypo show NAME prints a method piece by piece")


def letters(entry: Entry) -> str:
    """The axes in which a method differs, each in its own place: `-BCDE-G--`."""
    from anypo.core.explain import AXES

    return "".join(letter if axis in entry["axes"] else "-" for axis, letter in AXES.items())


def counted(entries: list[Entry]) -> str:
    """`13 methods, 12 verified`; sketches stand outside both numbers."""
    real = [e for e in entries if e["kind"] != "sketch"]
    sketches = len(entries) - len(real)
    beside = f"; {sketches} sketch{'es' * (sketches > 1)} not counted" if sketches else ""
    right = sum(e["verified"] for e in real)
    return f"{len(real)} method{'s' * (len(real) != 1)}, {right} verified{beside}"
