"""What survived: `survivors.json`, where people write reasons, and the page `docs/mutation.md`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutation.mutants import KINDS, Mutant

FILE = Path(__file__).with_name("survivors.json")
SERIOUS = ("sign", "denominator", "key")
"""Kinds of which none may survive, unless it changes no number."""

KEY = ("file", "original", "mutated")
"""What tells one survivor of the record from another, as `Mutant.key` does."""

EQUIVALENT = "Equivalent: "
"""How a reason begins that says why a mutant changes no number that can be reached."""

DEFAULT = "A default: recipes, vectors and identities give their own value."
"""The reason of a field's default, until a person writes another."""

HEAD = """# Mutation testing

Every line of arithmetic in `math` and in the pieces that make advantages, ratios, surrogates,
penalties and weights is made wrong in every way that a fixed list of edits allows (`+` for `−`, a
dropped sign, `*` for `/`, a mean for a sum, another group key, a missing clamp, another constant).
One error at a time, the reference vectors and the identities run on the wrong code: an error that
nothing notices is a survivor. `make mutation` repeats it, and writes this page.

Not mutated: refusals and their messages, and what a piece declares to the engine; other tests look
after those.
"""


def entry(mutant: Mutant, reason: str) -> dict[str, Any]:
    """A survivor, as it is stored."""
    return {
        "file": mutant.file,
        "function": mutant.function,
        "line": mutant.line,
        "kind": mutant.kind,
        "original": mutant.original,
        "mutated": mutant.mutated,
        "reason": reason,
    }


def load(file: Path = FILE) -> dict[str, Any]:
    """The last full run; one without survivors where there is none."""
    return json.loads(file.read_text("utf-8")) if file.exists() else {"survivors": []}


def merged(
    mutants: Sequence[Mutant], verdicts: Sequence[tuple[str, str]], before: dict[str, Any]
) -> dict[str, Any]:
    """The record of a full run, with the reasons that were written for the last one."""
    reasons = {(s["file"], s["original"], s["mutated"]): s["reason"] for s in before["survivors"]}
    survivors = [
        entry(m, reasons.get(m.key) or _usual(m))
        for m, (killer, _) in zip(mutants, verdicts, strict=True)
        if not killer
    ]
    return {**counts(mutants, verdicts), "survivors": survivors}


def updated(
    mutants: Sequence[Mutant], verdicts: Sequence[tuple[str, str]], before: dict[str, Any]
) -> dict[str, Any]:
    """The record of a full run after survivors of some files were tried again with more tests.

    A survivor of these files whose line is no longer there leaves the record.
    """
    tried = {m.file for m in mutants}
    alive = merged(mutants, verdicts, before)["survivors"]
    files = {f: dict(c) for f, c in before["files"].items()}
    for file in tried:
        files[file]["survived"] = 0
    for m, (killer, _) in zip(mutants, verdicts, strict=True):
        files[m.file][killer or "survived"] += 1
    others = [s for s in before["survivors"] if s["file"] not in tried]
    names = ("vectors", "identities", "survived")
    total = {name: sum(c[name] for c in files.values()) for name in names}
    count = {"mutants": sum(total.values())}
    survivors = sorted([*others, *alive], key=lambda s: (s["file"], s["line"]))
    return {**before, **count, **total, "files": files, "survivors": survivors}


def _usual(mutant: Mutant) -> str:
    return DEFAULT if mutant.default and mutant.kind not in SERIOUS else ""


def counts(mutants: Sequence[Mutant], verdicts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """How many mutants there were, and what killed them, in all and by file."""
    files: dict[str, Counter[str]] = {}
    for m, (killer, _) in zip(mutants, verdicts, strict=True):
        files.setdefault(m.file, Counter())[killer or "survived"] += 1
    names = ("vectors", "identities", "survived")
    total = Counter(killer or "survived" for killer, _ in verdicts)
    return {
        "mutants": len(mutants),
        **{name: total[name] for name in names},
        "files": {f: {name: c[name] for name in names} for f, c in sorted(files.items())},
    }


def open_ones(survivors: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Survivors that may not stay: signs, denominators and keys that do change a number."""
    return [s for s in survivors if s["kind"] in SERIOUS and not s["reason"].startswith(EQUIVALENT)]


def table(found: dict[str, Any]) -> list[str]:
    """Mutants by file, as lines of Markdown."""
    lines = [
        "| file | mutants | killed by vectors | killed by identities | survivors |",
        "|---|---:|---:|---:|---:|",
    ]
    for file, c in found["files"].items():
        name = file.removeprefix("src/anypo/")
        killed = (c["vectors"], c["identities"], c["survived"])
        lines.append(f"| `{name}` | {sum(killed)} | " + " | ".join(map(str, killed)) + " |")
    all_ = [found[k] for k in ("mutants", "vectors", "identities", "survived")]
    return [*lines, "| **all** | " + " | ".join(f"**{n}**" for n in all_) + " |"]


def page(found: dict[str, Any]) -> str:
    """`docs/mutation.md`."""
    lines = [HEAD, *table(found), ""]
    survivors = found["survivors"]
    by_kind = Counter(s["kind"] for s in survivors)
    if survivors:
        lines += ["## Survivors", ""]
        lines += ["By kind: " + ", ".join(f"{k} {by_kind[k]}" for k in KINDS if by_kind[k]) + "."]
        same = [s for s in survivors if s["reason"].startswith(EQUIVALENT)]
        if same:
            lines += [f"{len(same)} of them are equivalent: they change no number."]
        lines += [""]
    for kind in KINDS:
        mine = [s for s in survivors if s["kind"] == kind]
        if not mine:
            continue
        lines += [f"### {kind.capitalize()}", "", "| where | right | wrong | why it survives |"]
        lines += ["|---|---|---|---|", *(_row(s) for s in mine), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(s: dict[str, Any]) -> str:
    where = f"`{s['file'].removeprefix('src/anypo/')}` {s['function']}"
    cells = [where, _code(s["original"]), _code(s["mutated"]), s["reason"] or "not told apart yet"]
    return "| " + " | ".join(cells) + " |"


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def write(found: dict[str, Any], root: Path) -> None:
    """Both files."""
    FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (root / "docs" / "mutation.md").write_text(page(found), "utf-8")
