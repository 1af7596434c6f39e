"""What is known of each method's faithfulness: reference files, errors, and where it departs.

`measure` runs the reference files. What `stored` makes of it is kept beside this file, and `proofs`
reads it there, since an installed package has no folder of reference files.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from anypo.core.errors import UsageError
from anypo.core.method import Method
from anypo.core.recipe import Recipe
from anypo.verify.functions import ALONE, FUNCTIONS
from anypo.verify.verify import Row, files, verify

STORED = Path(__file__).with_name("faithfulness.json")
FLOOR = 1e-12
"""Below it an error is the order of additions, which differs between machines."""


@dataclass(frozen=True)
class Proof:
    """One reference file: whose it is, how many of its cases agree, and within what.

    `method` is the name of a method, `-` for a piece or a function that is tested alone, and empty
    where there is no such method yet. `error` is the largest one, rounded up to a power of ten.
    """

    method: str
    file: str
    kind: str
    ok: int
    failed: int
    uncovered: int
    error: float
    tolerance: float
    source: str

    @property
    def cases(self) -> str:
        """`3`, or `2 of 3` where not all could be run."""
        total = self.ok + self.failed + self.uncovered
        return str(total) if self.ok == total else f"{self.ok} of {total}"

    @property
    def within(self) -> str:
        """The error as it is written: `1e-9`; empty where no case was run."""
        return power(self.error) if self.ok or self.failed else ""


def power(value: float) -> str:
    """A number as it is written: 1e-8."""
    return f"{value:.0e}".replace("e-0", "e-")


def measure(folder: Path, find: Callable[[str], Method]) -> list[Proof]:
    """Run every reference file of a folder; `find` gives the method of a name."""
    return [_proof(file, find) for file in files([folder])]


def _proof(file: Path, find: Callable[[str], Method]) -> Proof:
    def resolve(name: str, **arguments: object) -> Recipe:
        return find(name)(**arguments)

    data, rows = json.loads(file.read_text("utf-8")), verify(file, resolve)
    count = {s: sum(r.status == s for r in rows) for s in ("ok", "FAILED", "not covered")}
    return Proof(
        _owner(data["method"], find),
        file.name,
        data["kind"],
        *count.values(),
        error=_rounded_up(r for r in rows if r.compared),
        tolerance=rows[0].tolerance,
        source=data["source"],
    )


def _owner(name: str, find: Callable[[str], Method]) -> str:
    try:
        return find(name).info.name
    except UsageError:
        return "-" if name in ALONE or name in FUNCTIONS else ""


def _rounded_up(rows: Iterable[Row]) -> float:
    worst = max((r.error for r in rows), default=0.0)
    return float(f"1e{math.ceil(math.log10(max(worst, FLOOR)))}") if worst < math.inf else math.inf


def stored(found: Iterable[Proof]) -> str:
    """The text that is kept: one reference file per line, so that a change is one line."""
    lines = ",\n".join(json.dumps(asdict(p), ensure_ascii=False) for p in found)
    return f"[\n{lines}\n]\n"


@functools.cache
def proofs(file: Path = STORED) -> dict[str, list[Proof]]:
    """Method → its reference files, as they were last measured."""
    found: dict[str, list[Proof]] = {}
    for entry in json.loads(file.read_text("utf-8")):
        found.setdefault(entry["method"], []).append(Proof(**entry))
    return found


def agrees(found: Iterable[Proof]) -> bool:
    """Whether a method is verified: some cases agree with the reference, and none disagrees."""
    found = list(found)
    return any(p.ok for p in found) and not any(p.failed for p in found)


def deviations(doc: str) -> str:
    """What a docstring says after `Deviations:`, up to another label or to the paragraph's end.

    A sketch says after `Sketch:` what is known and what was guessed.
    """
    end = r"\s*\b(?:References?|Shapes|Parameters):|\s*\bCouples the\b|\n\s*\n|\Z"
    text = re.search(rf"\b(?:Deviations?|Sketch):\s+(.*?)(?={end})", doc, re.DOTALL)
    return " ".join(text[1].split()) if text else ""
