"""What a run recorded, and robust statistics over stretches of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, Any]]
SURE = 2.3
"""Standard errors that count as a difference: one in a hundred by chance, one-sided."""

STEP = 0.03
"""Share of a metric's whole range that counts as a step from one window to the next."""

NARROWEST, WIDEST = 5, 20
"""Iterations of a window: a quarter of what there is, within these bounds."""


@dataclass(frozen=True)
class Series:
    """A metric where a run has it: iterations and values, both `[n]`; windows at both ends."""

    steps: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Iterations of a window."""
        return max(1, min(WIDEST, max(NARROWEST, len(self) // 4), len(self)))

    @property
    def start(self) -> np.ndarray:
        """The values of the first window."""
        return self.values[: self.width]

    @property
    def end(self) -> np.ndarray:
        """The values of the last window."""
        return self.values[-self.width :]

    @property
    def before(self) -> np.ndarray:
        """The values of the window before the last one."""
        return self.values[-2 * self.width : -self.width]

    @property
    def span(self) -> tuple[int, int]:
        """Iterations of the last window."""
        return int(self.steps[-self.width]), int(self.steps[-1])

    @property
    def whole(self) -> tuple[int, int]:
        """First and last iteration."""
        return int(self.steps[0]), int(self.steps[-1])

    @cached_property
    def best(self) -> tuple[float, int, np.ndarray]:
        """The highest median of a window, the iteration where that ends, and its values."""
        windows = np.lib.stride_tricks.sliding_window_view(self.values, self.width)
        medians = np.median(windows, axis=-1)
        at = int(medians.argmax())
        return float(medians[at]), int(self.steps[at + self.width - 1]), windows[at]

    @property
    def rose(self) -> bool:
        """Whether the last window lies surely above the first."""
        return len(self) >= 2 * NARROWEST and above(self.start, self.end) >= SURE

    @property
    def fell(self) -> bool:
        """Whether the last window lies surely below the first."""
        return len(self) >= 2 * NARROWEST and above(self.end, self.start) >= SURE

    @property
    def rising(self) -> bool:
        """Whether the last window lies surely above the one before it, by a visible step."""
        if len(self) < 2 * self.width or above(self.before, self.end) < SURE:
            return False
        return bool(np.median(self.end) - np.median(self.before) >= STEP * np.ptp(self.values))


def above(low: np.ndarray, high: np.ndarray) -> float:
    """How surely `high` lies above `low`: the rank sum's distance from chance, in deviations."""
    n, m = len(low), len(high)
    everything = np.concatenate([low, high])
    _, place, counts = np.unique(everything, return_inverse=True, return_counts=True)
    ranks = (counts.cumsum() - (counts - 1) / 2)[place]
    size = n + m
    ties = float((counts**3 - counts).sum()) / (size * (size - 1))
    spread = math.sqrt(n * m / 12 * (size + 1 - ties))
    wins = float(ranks[n:].sum()) - m * (m + 1) / 2
    return (wins - n * m / 2) / spread if spread > 0 else 0.0


def agreement(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation of two rows of numbers, 0 where one of them does not vary."""
    a, b = (np.unique(v, return_inverse=True)[1].astype(float) for v in (x, y))
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def apart(some: tuple[int, int], other: tuple[int, int]) -> float:
    """How surely a share (correct, total) lies above another one, in standard errors."""
    (a, n), (b, m) = some, other
    if not n or not m:
        return 0.0
    p = (a + b + 1) / (n + m + 2)
    return (a / n - b / m) / math.sqrt(p * (1 - p) * (1 / n + 1 / m))


@dataclass(frozen=True)
class Record:
    """Facts (`anypo.json`), metric rows, scores, and completions by iteration, as plain values.

    Every check is a pure function of a record.
    """

    facts: Mapping[str, Any]
    rows: Rows
    scores: Mapping[str, Any] = field(default_factory=dict)
    completions: Mapping[int, Rows] = field(default_factory=dict)
    _known: dict[str, Series] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """Kind of the task."""
        return str(self.facts.get("task", {}).get("kind", "language"))

    @property
    def last(self) -> int:
        """The last finished iteration."""
        return int(self.rows[-1]["step"]) if self.rows else 0

    def series(self, name: str) -> Series:
        """A metric, where it is a finite number."""
        if name not in self._known:
            found = [(r["step"], r[name]) for r in self.rows if is_number(r.get(name))]
            steps, values = zip(*found) if found else ((), ())
            self._known[name] = Series(np.array(steps, dtype=int), np.array(values, dtype=float))
        return self._known[name]

    def updates(self, name: str) -> Series:
        """A metric in the iterations that had a gradient: what no update made says nothing."""
        made = [r for r in self.rows if (r.get("grad_norm") or 0) > 0]
        return replace(self, rows=made).series(name)

    @cached_property
    def reward(self) -> Series:
        """What the run is after: the return of whole episodes where there are some, or rewards."""
        returns = self.series("rollout/ep_rew_mean")
        return returns if len(returns) else self.series("reward")

    @property
    def parts(self) -> list[str]:
        """Names of the parts of the reward."""
        names = dict.fromkeys(n for row in self.rows for n in row)
        return [n[8:-5] for n in names if n.startswith("rewards/") and n.endswith("/mean")]

    @cached_property
    def held_out(self) -> list[tuple[int, int, int]]:
        """Iteration, correct and total of every measurement on held-out questions."""
        rows = {0: self.scores.get("before", {})}
        rows |= {row["step"]: row for row in self.rows}
        rows |= {self.last: self.scores["after"]} if self.scores.get("after") else {}
        found = [(s, r.get("held_out/correct"), r.get("held_out/total")) for s, r in rows.items()]
        return [(s, c, t) for s, c, t in sorted(found) if t and c is not None]

    @property
    def accuracy(self) -> float | None:
        """The last held-out accuracy, if it was measured at all."""
        return self.held_out[-1][1] / self.held_out[-1][2] if self.held_out else None

    @property
    def held_out_rose(self) -> bool:
        """Whether the last held-out accuracy is surely above the first."""
        if len(self.held_out) < 2:
            return False
        (_, *first), (_, *last) = self.held_out[0], self.held_out[-1]
        return apart((last[0], last[1]), (first[0], first[1])) >= 1.64

    @cached_property
    def answers(self) -> list[Mapping[str, Any]]:
        """All completions that were read, in the order of iterations."""
        return [row for step in sorted(self.completions) for row in self.completions[step]]

    @cached_property
    def recent(self) -> list[Mapping[str, Any]]:
        """Completions of the last recorded iterations, those of the last window."""
        from_step = self.reward.span[0] if len(self.reward) else 0
        steps = [s for s in sorted(self.completions) if s >= from_step]
        steps = steps or sorted(self.completions)[-1:]
        return [row for step in steps for row in self.completions[step]]

    @cached_property
    def top(self) -> float | None:
        """The best score that any completion had."""
        scores = [row["score"] for row in self.answers if is_number(row.get("score"))]
        return max(scores) if scores else None

    @property
    def solved(self) -> bool:
        """Whether the task is learned: 9 of 10 held-out answers right, or rewards at the top."""
        if self.accuracy is not None:
            return self.accuracy >= 0.9
        return self.full and np.ptp(self.reward.values) > 0

    @property
    def full(self) -> bool:
        """Whether rewards are at their top: there is nothing left to find in training.

        Where no completion is at hand, but answers are right or wrong, a right one has 1.
        """
        top = 1.0 if self.top is None and self.accuracy is not None else self.top
        if not top or top < 0 or not len(self.reward):
            return False
        return float(np.median(self.reward.end)) >= 0.95 * top

    def fields(self, axis: str, name: str) -> dict[str, Any]:
        """Path → value of every field of that name on an axis, however its pieces are combined."""
        return dict(_found(self.facts.get("recipe", {}).get(axis), axis, name))

    def field(self, axis: str, name: str, default: Any) -> Any:
        """The first field of that name on an axis."""
        return next(iter(self.fields(axis, name).values()), default)

    @property
    def visits(self) -> int:
        """Optimizer steps on one batch."""
        passes = self.field("update", "epochs", 1)
        return int(passes) * int(self.field("update", "minibatches_per_epoch", 1))

    @property
    def lr(self) -> float:
        """The last learning rate."""
        rates = self.series("learning_rate")
        return float(rates.values[-1]) if len(rates) else 0.0

    def setting(self, name: str, default: Any = 0) -> Any:
        """A setting of the run."""
        return self.facts.get("settings", {}).get(name, default)


def _found(node: Any, path: str, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, (list, tuple)):
        node = dict(enumerate(node))
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        infinite = isinstance(value, Mapping) and set(value) == {"float"}
        value = float(value["float"]) if infinite else value
        if key == name:
            yield f"{path}.{key}", value
        else:
            yield from _found(value, f"{path}.{key}", name)


def is_number(x: Any) -> bool:
    """Whether a recorded value is a finite number."""
    return isinstance(x, (int, float)) and math.isfinite(x)
