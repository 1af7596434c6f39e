"""What an evaluation measured: numbers with intervals, question by question, alone or in pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError
from anypo.engine.measure import Measure, Paired, paired
from anypo.engine.metrics import interval


@dataclass(frozen=True)
class Side:
    """One side of a task (or its episodes, or its points).

    `measures` are means with 95 % intervals, `rows` what they are means of: one row per question,
    with the value of each measure under its name, and the answers.
    """

    measures: dict[str, Measure]
    rows: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def total(self) -> int:
        """Questions, episodes or points."""
        return len(self.rows)

    @property
    def correct(self) -> int:
        """Questions whose greedy answer is exact."""
        return int(sum(row.get("greedy", 0) for row in self.rows))

    @property
    def accuracy(self) -> float:
        """Share of exact greedy answers."""
        return self.correct / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy."""
        return interval(self.correct, self.total)


@dataclass(frozen=True)
class Scores(Mapping[str, Side]):
    """Side → what was measured there: `scores["held_out"].measures["pass@8"].value`.

    `settings` say how it was measured; `task` is what it was measured on, for another policy to be
    asked the same.
    """

    sides: dict[str, Side]
    settings: dict[str, Any] = field(default_factory=dict)
    task: Any = field(default=None, repr=False, compare=False)

    def __getitem__(self, side: str) -> Side:
        return self.sides[side]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sides)

    def __len__(self) -> int:
        return len(self.sides)

    def save(self, path: str | Path) -> Path:
        """Write every question with its answers and scores as parquet; returns the path."""
        from anypo.backends.parquet import write_rows

        path = Path(path)
        if path.suffix != ".parquet":
            raise UsageError(f"{path} does not end in .parquet: questions are saved as that")
        write_rows(path, [{"side": s, **row} for s, side in self.items() for row in side.rows])
        return path

    def against(self, other: Scores) -> dict[str, dict[str, Paired]]:
        """Side → measure → how much better these scores are than others on the same questions.

        Raises `UsageError` where the two answered other questions.
        """
        found: dict[str, dict[str, Paired]] = {}
        for name, side in self.items():
            there = other.sides.get(name, Side({}))
            if [_about(row) for row in side.rows] != [_about(row) for row in there.rows]:
                raise UsageError(
                    "the two were not asked the same questions: give both the same task, seed and n"
                )
            shared = [m for m in side.measures if m in there.measures and side.rows]
            pairs = {m: _known(side.rows, there.rows, m) for m in shared}
            found[name] = {m: paired(*zip(*rows)) for m, rows in pairs.items() if rows}
        return found


def _about(row: Mapping[str, Any]) -> Any:
    return row.get("prompt", row.get("seed", row.get("number")))


def _known(mine: list[Any], theirs: list[Any], name: str) -> list[tuple[float, float]]:
    """The values of a measure where both have one."""
    pairs = [(a.get(name), b.get(name)) for a, b in zip(mine, theirs)]
    return [(a, b) for a, b in pairs if a is not None and b is not None]
