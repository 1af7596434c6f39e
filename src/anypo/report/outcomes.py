"""What a finished run came to, for it to be set against others: its score, its curve, its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anypo.core.errors import UsageError
from anypo.report.run import RunData, load

METRICS = {
    "language": "held_out/accuracy",
    "preference": "held_out/accuracy",
    "demonstration": "held_out/nll",
    "control": "rollout/ep_rew_mean",
    "generator": "reward",
}
"""Kind of a task → what a comparison scores, unless it is told otherwise."""

LESS_IS_BETTER = frozenset("nll perplexity loss mean_length clipped_ratio kl approx_kl".split())
"""Last words of metrics of which less is better."""

SHARES = frozenset("accuracy mean_token_accuracy".split())
"""Last words of metrics that are shares: shown in percent, and kept within 0 and 1."""

UNITS = ("completions", "tokens", "iterations", "updates", "seconds")
LATE, SMOOTH = 0.1, 20
"""What every iteration measures anew is scored by its mean over the last tenth of the run, and its
curve is a trailing mean over a twentieth of the iterations."""

Costs = dict[str, float]
Points = list[tuple[Costs, float]]


@dataclass(frozen=True)
class Outcome:
    """A finished run: the method it stands for, its score, its curve, and what it spent.

    `points` are what was measured along the run, each with all that had been spent by then; `lr` is
    the learning rate of its first iteration.
    """

    label: str
    seed: int
    out: Path
    score: float
    points: Points
    spent: Costs
    facts: Mapping[str, Any]
    lr: float | None = None
    metric: str = ""

    def reached(self, level: float, better: int) -> Costs | None:
        """What had been spent when the score first was at a level; None if it never was."""
        found = (costs for costs, x in self.points if better * x >= better * level)
        return next(found, None)

    def at(self, grid: Sequence[float] | np.ndarray, unit: str) -> np.ndarray:
        """The curve at amounts of a unit, straight between points and level beyond them."""
        x, y = zip(*((costs[unit], value) for costs, value in self.points))
        return np.interp(grid, x, y)


def direction(metric: str) -> int:
    """1 where more of a metric is better, −1 where less is."""
    return -1 if metric.rsplit("/", 1)[-1] in LESS_IS_BETTER else 1


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 and is shown in percent."""
    return metric.rsplit("/", 1)[-1] in SHARES


def finished(out: Path) -> bool:
    """Whether a folder holds a run that is over, with its last scores."""
    return (out / "anypo.json").is_file() and load(out, completions=False).ended


def outcome(out: Path, metric: str = "", label: str = "") -> Outcome:
    """The outcome of a finished run, by the metric of its kind if none is named.

    A metric that is measured after training counts as it was then; one that belongs to sampling
    counts as its mean over the last tenth of the iterations. Raises `UsageError` for a run that is
    not over, or that has no such metric.
    """
    run = load(out, completions=False)
    if not run.ended or not run.rows:
        raise UsageError(f"{out} is not finished: let it end, then compare")
    metric = metric or METRICS.get(run.kind, "reward")
    spent = along(run.rows)
    values = [number(row, metric) for row in run.rows]
    points = [(s, x) for s, x in zip(spent, values) if x is not None]
    before, after = (number(run.scores.get(w, {}), metric) for w in ("before", "after"))
    if after is not None:
        points = [p for p in points if p[0] is not spent[-1]] + [(spent[-1], after)]
    if not points:
        known = ", ".join(measured(run))
        raise UsageError(f"{out} measured no {metric!r}: score another --metric, of {known}")
    start = [] if before is None else [(dict.fromkeys(UNITS, 0.0), before)]
    score = _late(points, spent[-1]["iterations"]) if after is None else after
    points = _smooth(points) if after is None else points
    name = label or str(run.facts.get("method", "run"))
    seed = int(run.setting("seed", 0))
    lr = number(run.rows[0], "learning_rate")
    return Outcome(name, seed, out, score, start + points, spent[-1], run.facts, lr, metric)


def number(row: Mapping[str, Any], metric: str) -> float | None:
    """A metric of a row where it is a finite number."""
    x = row.get(metric)
    return float(x) if isinstance(x, (int, float)) and math.isfinite(x) else None


def measured(run: RunData) -> list[str]:
    """The metrics that a run has by which one could score it."""
    rows = [*run.rows, *(run.scores.get(w, {}) for w in ("before", "after"))]
    return sorted({k for row in rows for k in row if number(row, k) is not None} - {"step"})


def along(rows: Sequence[Mapping[str, Any]]) -> list[Costs]:
    """What had been spent after each iteration, in every unit."""
    found: list[Costs] = []
    sums = dict.fromkeys(UNITS, 0.0)
    for row in rows:
        sums["completions"] += number(row, "sampled") or 0.0
        sums["updates"] += number(row, "updates") or 0.0
        sums["seconds"] += number(row, "step_time") or 0.0
        sums["tokens"] = number(row, "num_tokens") or sums["tokens"]
        sums["iterations"] = number(row, "step") or sums["iterations"] + 1
        found.append(dict(sums))
    return found


def _late(points: Points, last: float) -> float:
    """The mean over the last tenth of the iterations; the last value if none was measured there."""
    late = [x for costs, x in points if costs["iterations"] > (1 - LATE) * last]
    return math.fsum(late) / len(late) if late else points[-1][1]


def _smooth(points: Points) -> Points:
    """Trailing means over a twentieth of the points."""
    values = [x for _, x in points]
    k = max(len(values) // SMOOTH, 1)
    means = [math.fsum(values[max(i - k, 0) : i]) / min(i, k) for i in range(1, len(values) + 1)]
    return [(costs, x) for (costs, _), x in zip(points, means)]
