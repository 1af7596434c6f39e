"""What a run's folder holds, read for people: facts, curves, completions; bounded in size."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anypo.backends.parquet import read_rows
from anypo.core.errors import UsageError
from anypo.core.recipe import AXES
from anypo.engine.log import read
from anypo.engine.metrics import interval
from anypo.report.text import visible

MOST_ITERATIONS, MOST_ROWS, MOST_CHARACTERS, MOST_IN_ALL = 60, 128, 1500, 4_000_000
"""Bounds of what a page shows of the completions; above them a page says what it leaves out."""

LETTERS: dict[str, str] = dict(zip(AXES, "ABCDEFGHI", strict=True))


@dataclass(frozen=True)
class Point:
    """A measured share with its 95 % interval."""

    step: int
    value: float
    low: float
    high: float


@dataclass
class RunData:
    """Facts (`anypo.json`), metric rows, scores before and after, completions by iteration."""

    out: Path
    facts: dict[str, Any]
    rows: list[dict[str, Any]]
    scores: dict[str, dict[str, Any]]
    completions: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    left_out: str = ""

    @property
    def last(self) -> int:
        """The last finished iteration."""
        return self.rows[-1]["step"] if self.rows else 0

    def series(self, name: str) -> list[tuple[int, float]]:
        """Iteration and value of a metric, where it has one."""
        return [(row["step"], row[name]) for row in self.rows if row.get(name) is not None]

    def accuracy(self, side: str) -> list[Point]:
        """Greedy accuracy on a side: before training, along it, and after it."""
        found = {row["step"]: row for row in self.rows}
        found |= {0: self.scores.get("before", {})}
        found |= {self.last: self.scores["after"]} if "after" in self.scores else {}
        points = [share(row, side, step) for step, row in sorted(found.items())]
        return [p for p in points if p is not None]


def share(row: Mapping[str, Any], side: str, step: int = 0) -> Point | None:
    """The accuracy on a side that a row of numbers holds, if it holds one."""
    total = row.get(f"{side}/total")
    if not total:
        return None
    correct = row[f"{side}/correct"]
    return Point(step, correct / total, *interval(correct, total))


def load(out: Path, completions: bool = True) -> RunData:
    """Read a run, finished or not; `UsageError` for a folder that holds none."""
    if not (out / "anypo.json").is_file():
        raise UsageError(f"{out} holds no run: name a folder that anypo train wrote")
    try:
        facts = json.loads((out / "anypo.json").read_text("utf-8"))
    except ValueError:
        raise UsageError(f"{out / 'anypo.json'} is damaged: it is no JSON") from None
    metrics, scores = out / "metrics.jsonl", {}
    if (out / "before.json").is_file():
        scores["before"] = json.loads((out / "before.json").read_text("utf-8"))
    if (out / "scores.json").is_file():
        scores |= json.loads((out / "scores.json").read_text("utf-8"))
    run = RunData(out, facts, read(metrics) if metrics.is_file() else [], scores)
    if completions:
        _read_completions(run)
    return run


def _read_completions(run: RunData) -> None:
    files = {int(f.stem.removeprefix("step_")): f for f in recorded(run.out)}
    kept, longest, cut = spread(sorted(files), MOST_ITERATIONS), 0, False
    for step in kept:
        rows = read_rows(files[step])
        longest = max(longest, len(rows))
        run.completions[step] = [{k: _short(v) for k, v in r.items()} for r in rows[:MOST_ROWS]]
        cut = cut or any(_long(v) for row in rows[:MOST_ROWS] for v in row.values())
    most = _fit(run.completions)
    said = {
        f"{len(kept)} of {len(files)} recorded iterations": len(kept) < len(files),
        f"the first {most} of {longest} completions of each": longest > most,
        f"the first {MOST_CHARACTERS} characters of long texts": cut,
    }
    shown = ", ".join(text for text, true in said.items() if true)
    run.left_out = f"This page holds {shown}; the folder completions holds all." if shown else ""


def _fit(completions: dict[int, list[dict[str, Any]]]) -> int:
    """Cut iterations alike until all fit into a page; returns how many rows each may have."""
    size = sum(len(json.dumps(rows)) for rows in completions.values())
    longest = max((len(rows) for rows in completions.values()), default=0)
    most = longest if size <= MOST_IN_ALL else max(1, longest * MOST_IN_ALL // size)
    for step, rows in completions.items():
        completions[step] = rows[:most]
    return most


def recorded(out: Path) -> list[Path]:
    """The files of completions that a run wrote."""
    files = (out / "completions").glob("step_*.parquet")
    return [f for f in files if re.fullmatch(r"step_\d+", f.stem)]


def spread(items: list[Any], most: int) -> list[Any]:
    """At most so many items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > MOST_CHARACTERS


def _short(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return visible(text[:MOST_CHARACTERS] + ("…" if _long(text) else ""))


def recipe_rows(node: Any, path: str = "") -> list[tuple[str, str, str]]:
    """Axis letter, path and value of every field of a recipe as `anypo.json` stores it."""
    if isinstance(node, Mapping) and set(node) == {"float"}:
        node = float(node["float"])
    if isinstance(node, Mapping):
        own = [_row(path, node["piece"])] if path and "piece" in node else []
        inner = {k: v for k, v in node.items() if k != "piece"}
        below = [r for k, v in inner.items() for r in recipe_rows(v, f"{path}.{k}".lstrip("."))]
        return own + below
    if isinstance(node, list) and any(isinstance(v, Mapping) for v in node):
        return [r for i, v in enumerate(node) for r in recipe_rows(v, f"{path}.{i}")]
    if isinstance(node, list):
        return [_row(path, ", ".join(map(str, node)) or "none")]
    return [_row(path, node)]


def _row(path: str, value: Any) -> tuple[str, str, str]:
    return LETTERS.get(path.split(".")[0], ""), path, str(value)
