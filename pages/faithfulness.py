"""`docs/faithfulness.md`: what every method was checked against, and where it departs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from anypo import api
from anypo.core.explain import further, on_axes
from anypo.core.method import MethodInfo
from anypo.core.papers import papers
from anypo.verify.faithfulness import STORED, Proof, agrees, deviations, measure, power, stored
from pages.text import code, escaped, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faithfulness.md"
VECTORS, SURVIVORS = ROOT / "tests" / "vectors", ROOT / "tests" / "mutation" / "survivors.json"

HEAD = """# Faithfulness

What is known of how faithful each method is, and nothing else. `make faithfulness` writes this page
from the reference files in `tests/vectors`, the docstrings and the last full mutation run; a test
fails while it is out of date.

- *Verified* means that `anypo verify` ran the pieces that `train` runs on every case counted here,
  in float64, and that the largest absolute error stayed below the tolerance. It says nothing of
  how well a method learns.
- *Error* is rounded up to a power of ten, and never below 1e-12, where it is only the order of
  additions.
- *Deviations* are the author's own words out of the docstring, and those of the pieces.
- A *sketch* is made from an abstract alone, its equations being not public. Sketches stand outside
  every count.
"""


def write() -> list[Path]:
    """Run every reference file, and write the page and the data that the package ships."""
    found = measure(VECTORS, api.find)
    STORED.write_text(stored(found), "utf-8")
    PAGE.write_text(page(found), "utf-8")
    return [STORED, PAGE]


def page(found: Iterable[Proof]) -> str:
    """The whole page."""
    by: dict[str, list[Proof]] = {}
    for proof in found:
        by.setdefault(proof.method, []).append(proof)
    infos = api.methods()
    real = [i for i in infos if i.kind != "sketch"]
    right = sum(agrees(by.get(i.name, ())) for i in real)
    parts = [
        HEAD,
        f"{len(real)} methods, {right} of them verified; {len(infos) - len(real)} sketches.",
        "## Overview",
        table(
            ("method", "kind", "paper", "status", "cases", "error", "tolerance"),
            [_row(i, by.get(i.name, [])) for i in infos],
        ),
        "## Method by method",
        *(_section(i, by.get(i.name, [])) for i in infos),
        "## Pieces that depart from a paper",
        _pieces(infos),
        "## Pieces and functions tested alone",
        _files(by.get("-", [])),
        "## Reference files without a method",
        _files(by.get("", [])),
        "## Mutation testing",
        _mutation(),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _row(info: MethodInfo, found: list[Proof]) -> tuple[str, ...]:
    head = (f"[{code(info.name)}](#{info.name})", info.kind, escaped(info.paper))
    if info.kind == "sketch" or not found:
        return (*head, "sketch" if info.kind == "sketch" else "no reference file", "", "", "")
    ran = [p for p in found if p.within]
    if not ran:
        return (*head, "not run by `verify`", "", "", "")
    mark = "**FAILED**" if any(p.failed for p in ran) else "verified"
    cases = f"{sum(p.ok for p in ran)} of {sum(p.ok + p.failed + p.uncovered for p in ran)}"
    error, tolerance = (power(max(x)) for x in zip(*((p.error, p.tolerance) for p in ran)))
    return (*head, mark, cases, f"≤ {error}", tolerance)


def _section(info: MethodInfo, found: list[Proof]) -> str:
    named = ", ".join(escaped(p) for p in papers(info.paper, info.doc))
    lines = [f"### {info.name}", "", f"{escaped(info.title)}, {info.kind}; papers: {named}.", ""]
    lines += map(_line, found)
    label = "Known and guessed" if info.kind == "sketch" else "Deviations"
    lines.append(f"- {label}: {escaped(deviations(info.doc) or 'nothing is said of them.')}")
    if links := [f"[{code(name)}](#{name.lower()})" for name in _departing(info)]:
        lines.append(f"- Pieces that depart from a paper: {', '.join(links)}.")
    return "\n".join(lines)


def _departing(info: MethodInfo) -> dict[str, str]:
    """Piece of a method → its deviation, where its docstring has one."""
    recipe = info.build()
    used = {type(p).__name__: inspect.getdoc(p) for p in (*on_axes(recipe), *further(recipe))}
    return {n: text for n, doc in sorted(used.items()) if (text := deviations(doc or ""))}


def _pieces(infos: Iterable[MethodInfo]) -> str:
    found = {name: text for info in infos for name, text in _departing(info).items()}
    sections = [f"### {name}\n\n{escaped(text)}" for name, text in sorted(found.items())]
    return "\n\n".join(sections) or "None."


def _files(found: list[Proof]) -> str:
    return "\n".join(map(_line, found)) or "None."


def _line(proof: Proof) -> str:
    said = f"not run by `verify`{_readers(proof.file)}"
    if proof.within:
        failed = f", **{proof.failed} FAILED**" if proof.failed else ""
        said = f"error ≤ {proof.within}, tolerance {power(proof.tolerance)}{failed}"
    cases = f"{proof.cases} case{'s' * (proof.cases != '1')} ({proof.kind})"
    source = escaped(" ".join(proof.source.split()).rstrip("."))
    return f"- {code(proof.file)}: {cases}, {said}. Source: {source}."


def _readers(file: str) -> str:
    """Tests of their own that read a file which `verify` has no runner for."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [t.relative_to(ROOT).as_posix() for t in tests if f'"{file}"' in t.read_text("utf-8")]
    return f", read by {', '.join(map(code, found))}" if found else ""


def _mutation() -> str:
    """The numbers of the last full mutation run, and every mutant that survived it."""
    if not SURVIVORS.exists():
        return "No full run is recorded."
    data: dict[str, Any] = json.loads(SURVIVORS.read_text("utf-8"))
    survivors = data.get("survivors", [])
    rows = [
        (
            f"{code(s['file'])} {s['line']}",
            code(s["original"]),
            code(s["mutated"]),
            escaped(s["reason"] or "no reason written"),
        )
        for s in survivors
    ]
    page = ROOT / "docs" / "mutation.md"
    more = " [Mutation testing](mutation.md) says how it is done." if page.exists() else ""
    total = f"{data['mutants']} wrong lines were tried; " if "mutants" in data else ""
    head = f"{total}{len(survivors)} of them changed no test's verdict.{more}"
    return f"{head}\n\n{table(('line', 'original', 'mutant', 'why it may stay'), rows)}"
