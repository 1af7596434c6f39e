"""What a run's folder holds, read for people: facts, curves, completions; bounded in size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError
from anypo.core.recipe import AXES
from anypo.engine.log import read
from anypo.engine.metrics import interval
from anypo.report.completions import Step, read_steps

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
    scores: dict[str, Any]
    completions: dict[int, Step] = field(default_factory=dict)
    left_out: str = ""

    @property
    def kind(self) -> str:
        """The task's kind: language, control, generator, preference, demonstration."""
        task = self.facts.get("task")
        return str(task.get("kind", "")) if isinstance(task, dict) else ""

    def setting(self, name: str, default: Any) -> Any:
        """A setting of the run, or the default where it has none of that type."""
        settings = self.facts.get("settings")
        value = settings.get(name, default) if isinstance(settings, dict) else default
        return value if isinstance(value, type(default)) or default == "" else default

    @property
    def given(self) -> bool:
        """Whether the answers were the data's, so that nothing was sampled."""
        return self.kind in ("preference", "demonstration")

    @property
    def ended(self) -> bool:
        """Whether the run is over: its last scores are taken after training."""
        return "after" in self.scores

    @property
    def stopped(self) -> str:
        """Why the run ended before its last iteration; empty where it did not."""
        return str(self.scores.get("stopped") or "")

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


def load(out: Path, completions: bool = True, most: int = 0) -> RunData:
    """Read a run, finished or not, with the completions of at most so many iterations.

    A file that is just being written is read as far as it goes. Raises `UsageError` for a folder
    that holds no run.
    """
    if not (out / "anypo.json").is_file():
        raise UsageError(f"{out} holds no run: name a folder that anypo train wrote")
    try:
        facts = json.loads((out / "anypo.json").read_text("utf-8"))
    except ValueError:
        raise UsageError(f"{out / 'anypo.json'} is damaged: it is no JSON") from None
    metrics = out / "metrics.jsonl"
    scores = {"before": before} if (before := _written(out / "before.json")) else {}
    scores |= _written(out / "scores.json")
    run = RunData(out, facts, read(metrics) if metrics.is_file() else [], scores)
    if completions:
        run.completions, run.left_out = read_steps(out, most)
    return run


def _written(file: Path) -> dict[str, Any]:
    """What a JSON file holds; nothing while it is not there or not whole."""
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


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
