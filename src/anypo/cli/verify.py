"""`anypo verify`: check methods against files of reference numbers."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from anypo.cli.options import Flag, gather, parse, said

FILES = said("vector files, or folders of them", "FILE|FOLDER...")


@dataclass(frozen=True)
class Verify:
    """Run the pieces that train runs on reference cases, and report the largest errors."""

    files: Annotated[
        tyro.conf.Positional[tuple[Path, ...]],
        said("vector files, or folders of them", "FILE|FOLDER"),
    ]
    strict: Flag = False
    """count cases that are not covered as failures"""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print one row per case; exit code 1 when one failed."""
    options = parse(Verify, gather(Verify, words), "verify")
    from anypo import api
    from anypo.cli.screen import cell, console, print_json, table
    from anypo.verify.verify import files, verify

    rows = [row for file in files(list(options.files)) for row in verify(file, api.recipe)]
    bad = [r for r in rows if r.status == "FAILED" or (options.strict and r.status != "ok")]
    counts = {s: sum(r.status == s for r in rows) for s in ("ok", "FAILED", "not covered")}
    if options.json:
        cases = [{**asdict(r), "error": r.error if r.error < float("inf") else None} for r in rows]
        print_json({"cases": cases, "counts": counts, "failed": bool(bad)})
        return int(bool(bad))
    styles = {"ok": "green", "FAILED": "bold red", "not covered": "yellow"}
    shown = [
        (
            f"{r.file} {r.case}",
            r.method,
            cell(r.status, style=styles[r.status]),
            f"{r.error:.1e}" if r.compared else "",
            remark(r),
        )
        for r in rows
    ]
    columns = ("case", "method", "status", "error", "compared")
    screen = console(sys.stdout)
    screen.print(table(columns, shown, right=("error",)))
    screen.print(", ".join(f"{n} {status}" for status, n in counts.items() if n))
    return int(bool(bad))


def remark(row: Any) -> str:
    """What was compared, what the case has besides, and what is to be said of it."""
    parts = (", ".join(row.compared), row.note, ", ".join(row.left_out))
    texts = (parts[0], parts[1], f"left out: {parts[2]}" if parts[2] else "")
    return "; ".join(text for text in texts if text)
