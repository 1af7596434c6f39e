"""Methods set against each other: where each stands, who is ahead of whom, and what was equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anypo.engine.measure import Measure
from anypo.engine.validate import UNUSED
from anypo.report.outcomes import UNITS, Costs, Outcome, direction, is_share
from anypo.report.statistics import FREE, LEAST, Pair, mean, pairs, typical

NEAR = 0.05
"""Amounts that differ by less than this share are called equal."""

SPELT = 3
"""Pairs of which each is put into words, wherever it stands."""

POINTS = 41
"""Places along the budget at which curves are compared."""


@dataclass(frozen=True)
class Standing:
    """A method: its finished runs, its failed ones with their reasons, its scores and its cost.

    `reached` is the median over seeds of what it cost to reach the level, in every unit, infinite
    where the median run never did; `reachers` counts the runs that did.
    """

    label: str
    outcomes: tuple[Outcome, ...]
    failed: tuple[tuple[int, str], ...] = ()
    typical: Measure | None = None
    mean: Measure | None = None
    reached: Costs = field(default_factory=dict)
    reachers: int = 0
    tuned: str = ""

    @property
    def scores(self) -> dict[int, float]:
        """Seed → score."""
        return {o.seed: o.score for o in self.outcomes}

    def spent(self, unit: str) -> float:
        """What a run spent, on average."""
        return float(np.mean([o.spent[unit] for o in self.outcomes])) if self.outcomes else 0.0


@dataclass(frozen=True)
class Fact:
    """Something about every method, and whether it was equal for all."""

    name: str
    values: tuple[str, ...]
    equal: bool


@dataclass(frozen=True)
class Comparison:
    """Standings (best first), pairs, what was equal, and how it was judged.

    `unit` and `amount` are the budget of each run; `level` is the score whose cost is told; `out`
    is where everything is kept; `trials` are those of the tuning.
    """

    out: Path
    metric: str
    unit: str
    amount: float
    level: float
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    facts: tuple[Fact, ...]
    notes: tuple[str, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()
    command: str = ""

    @property
    def better(self) -> int:
        """1 where more is better, −1 where less is."""
        return direction(self.metric)

    @property
    def share(self) -> bool:
        """Whether scores are shares, shown in percent."""
        return is_share(self.metric)

    @property
    def page(self) -> Path:
        """The page that `write_comparison` wrote."""
        return self.out / "compare.html"

    @property
    def seeds(self) -> list[int]:
        """Every seed that a method ran or failed on."""
        ran = {seed for s in self.standings for seed in s.scores}
        return sorted(ran | {seed for s in self.standings for seed, _ in s.failed})

    def leads(self, pair: Pair) -> str:
        """Who is ahead in a pair; nobody where runs of the one ahead failed and are left out."""
        failed = {s.label for s in self.standings if s.failed}
        return "" if pair.ahead in failed else pair.ahead

    @property
    def winner(self) -> str:
        """The method that is ahead of every other one; empty for none."""
        labels = [s.label for s in self.standings if s.outcomes]
        wins = [self.leads(p) for p in self.pairs]
        ahead = (x for x in labels if len(labels) > 1 and wins.count(x) == len(labels) - 1)
        return next(ahead, "")

    def curves(self, unit: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Amounts of a unit, and each method's curves at them: `[points, seeds]`."""
        shown = [s for s in self.standings if s.outcomes]
        ends = [o.spent[unit] for s in shown for o in s.outcomes]
        starts = [o.points[0][0][unit] for s in shown for o in s.outcomes]
        grid = np.linspace(max(starts), max(max(starts), max(ends)), POINTS)
        return grid, {s.label: np.array([o.at(grid, unit) for o in s.outcomes]).T for s in shown}


def standing(
    label: str,
    outcomes: Sequence[Outcome],
    metric: str,
    failed: Sequence[tuple[int, str]] = (),
    tuned: str = "",
) -> Standing:
    """The standing of a method, still without what it cost to reach a level."""
    if not outcomes:
        return Standing(label, (), tuple(failed), tuned=tuned)
    bounds = (0.0, 1.0) if is_share(metric) else FREE
    scores, ordered = [o.score for o in outcomes], sorted(outcomes, key=lambda o: o.seed)
    both = typical(scores, bounds), mean(scores, bounds)
    return Standing(label, tuple(ordered), tuple(failed), *both, tuned=tuned)


def compared(
    standings: Sequence[Standing],
    metric: str,
    unit: str,
    amount: float,
    level: float | None = None,
    **kept: Any,
) -> Comparison:
    """The comparison of some standings; `kept` are its further fields.

    Without a level it is half way from the start to the best method's typical score.
    """
    better = direction(metric)
    if level is None:
        level = half_way(standings, better, is_share(metric))
    costed = [_costed(s, level, better) for s in standings]
    key = lambda s: -better * s.typical.value if s.typical else math.inf  # noqa: E731
    ordered = tuple(sorted(costed, key=key))
    widest = 1.0 if is_share(metric) else math.inf
    found = tuple(pairs({s.label: s.scores for s in ordered}, better, widest))
    facts = tuple(alike(ordered, unit))
    return Comparison(
        metric=metric,
        unit=unit,
        amount=amount,
        level=level,
        standings=ordered,
        pairs=found,
        facts=facts,
        **kept,
    )


def half_way(standings: Sequence[Standing], better: int, share: bool) -> float:
    """The score half way from where the runs began to the best method's; percent are whole."""
    known = [s for s in standings if s.typical]
    if not known:
        return 0.0
    start = float(np.mean([o.points[0][1] for s in known for o in s.outcomes]))
    best = max((s.typical.value for s in known if s.typical), key=lambda x: better * x)
    middle = (start + best) / 2
    return round(middle, 2) if share else float(f"{middle:.3g}")


def _costed(s: Standing, level: float, better: int) -> Standing:
    found = [o.reached(level, better) for o in s.outcomes]
    never = dict.fromkeys(UNITS, math.inf)
    costs = {u: float(np.median([(c or never)[u] for c in found])) for u in UNITS if found}
    reachers = sum(c is not None for c in found)
    return Standing(s.label, s.outcomes, s.failed, s.typical, s.mean, costs, reachers, s.tuned)


# ── what was equal ───────────────────────────────────────────────────────────────────────────────

SETTINGS = "prompts horizon temperature eval_every".split()
SAID = {
    "prompts": "prompts per iteration",
    "horizon": "horizon (0 = the task's own)",
    "eval_every": "iterations between evaluations",
}
PER_RUN = {u: f"{u} per run" for u in UNITS}


def alike(standings: Sequence[Standing], unit: str) -> list[Fact]:
    """What each method ran on and with, and what it spent; the budget's unit comes first."""
    shown = [s for s in standings if s.outcomes]
    if not shown:
        return []
    rows = [_described(s) for s in shown]
    found = [_fact(name, [row[name] for row in rows]) for name in rows[0]]
    units = [unit, *(u for u in UNITS if u != unit)]
    return (
        found[:2]
        + [_amounts(u, shown) for u in units[:1]]
        + found[2:]
        + [_amounts(u, shown) for u in units[1:]]
    )


def _described(s: Standing) -> dict[str, Any]:
    facts = s.outcomes[0].facts
    settings, policy, task = (facts.get(k) or {} for k in ("settings", "policy", "task"))
    idle = UNUSED.get(str(task.get("kind")), ())
    batch = s.spent("completions") / max(s.spent("iterations"), 1)
    found = {
        "task": task.get("name"),
        "policy": policy.get("name"),
        "seeds": ", ".join(str(o.seed) for o in s.outcomes),
        "tuning": s.tuned or "none",
        "learning rate": s.outcomes[0].lr,
        **{SAID.get(k, k): settings.get(k) for k in SETTINGS if k not in idle},
        "completions per iteration": brief(batch),
        "threads": (facts.get("hardware") or {}).get("threads"),
    }
    return found


def _fact(name: str, values: Sequence[Any]) -> Fact:
    texts = tuple("not recorded" if v is None else str(v) for v in values)
    return Fact(name, texts, len(set(texts)) == 1)


def _amounts(unit: str, shown: Sequence[Standing]) -> Fact:
    amounts = [s.spent(unit) for s in shown]
    near = max(amounts) - min(amounts) <= NEAR * max(amounts)
    return Fact(PER_RUN[unit], tuple(brief(x) for x in amounts), near)


def brief(x: float) -> str:
    """An amount in whole numbers from 100 on, with thin spaces, else in three digits."""
    if not math.isfinite(x):
        return "–"
    return f"{x:,.0f}".replace(",", "\u202f") if abs(x) >= 100 else f"{x:.3g}"


# ── in words ─────────────────────────────────────────────────────────────────────────────────────


def said(comparison: Comparison, x: float) -> str:
    """A score in words: whole percent for shares, else three digits."""
    return f"{100 * x:.0f}\u202f%" if comparison.share else f"{x:.3g}".replace("-", "−")


def gap(comparison: Comparison, x: float) -> str:
    """A difference of scores, without its unit."""
    value = f"{100 * x:.1f}".removesuffix(".0") if comparison.share else f"{x:.3g}"
    return "0" if float(value) == 0 else value.replace("-", "−")


def points(comparison: Comparison, x: float) -> str:
    """A difference of scores: `4 points`, or a number where scores are no shares."""
    value = gap(comparison, x)
    return f"{value} point{'s' * (value not in ('1', '−1'))}" if comparison.share else value


def headline(comparison: Comparison) -> str:
    """Who is ahead of all others, or that nobody is."""
    if comparison.winner:
        others = len([s for s in comparison.standings if s.outcomes]) - 1
        rest = "every other method" if others > 1 else comparison.standings[1].label
        return f"{comparison.winner} is ahead of {rest}"
    if not comparison.pairs:
        return "Nothing to compare: fewer than two methods have a finished run"
    some = any(comparison.leads(p) for p in comparison.pairs)
    return "No single winner" if some else "No winner"


def sentences(comparison: Comparison) -> list[str]:
    """One sentence for each pair; of many pairs, for each lead, and one for all the others."""
    if len(comparison.pairs) <= SPELT:
        return [sentence(comparison, p) for p in comparison.pairs]
    leads = [sentence(comparison, p) for p in comparison.pairs if comparison.leads(p)]
    rest = len(comparison.pairs) - len(leads)
    other = "other " if leads else ""
    said_ = f"No winner in the {other}{rest} pairs, which the table tells apart."
    return [*leads, said_] if rest else leads


def sentence(comparison: Comparison, pair: Pair) -> str:
    """Who is ahead and by how much, or why no winner is called and what it would take."""
    flip = comparison.better * pair.difference.value < 0
    first, second = (pair.second, pair.first) if flip else (pair.first, pair.second)
    sign = comparison.better * (-1 if flip else 1)
    low, high = sorted((sign * pair.difference.low, sign * pair.difference.high))
    size = points(comparison, sign * pair.difference.value)
    span = f"{size} ({gap_span(comparison, low, high)})"
    if comparison.leads(pair):
        return f"{first} is ahead of {second} by {span}."
    if pair.ahead:
        failed = next(s for s in comparison.standings if s.label == first).failed
        return (
            f"No winner between {first} and {second}: {first} scores higher by {span}, but "
            f"{len(failed)} of its runs failed and are left out."
        )
    start = f"No winner between {first} and {second}: "
    if not math.isfinite(low):
        return start + _without_spread(pair, size)
    return start + f"the difference is {span}." + _wanted(pair)


def gap_span(comparison: Comparison, low: float, high: float) -> str:
    """`1 to 7`."""
    return f"{gap(comparison, low)} to {gap(comparison, high)}"


def _without_spread(pair: Pair, size: str) -> str:
    n = pair.difference.count
    if n < 2:
        return f"the difference is {size} on one seed, which says nothing of how sure that is."
    if not pair.difference.value:
        return f"they scored the same on each of {n} seeds."
    return f"the difference is {size} on each of {n} seeds, which leaves no spread to judge by."


def _wanted(pair: Pair) -> str:
    more = pair.more
    if abs(pair.difference.value) < 1e-9:
        return ""
    if not more:
        return " More than 1000 seeds would be needed to see a difference of this size."
    many = f"{more} more seeds" if more > 1 else "1 more seed"
    return f" About {many} would be needed to see a difference of this size."


def caveats(comparison: Comparison) -> list[str]:
    """What a reader has to know before trusting the numbers."""
    found, seeds = [], len(comparison.seeds)
    if 1 < seeds < LEAST:
        found.append(
            f"With {seeds} seeds, typical scores are means with Student's intervals; from {LEAST} "
            "seeds on they are interquartile means."
        )
    found += [f"Every run of {s.label} failed." for s in comparison.standings if not s.outcomes]
    broken = [s for s in comparison.standings if s.failed and s.outcomes]
    if broken:
        whole = [(s, len(s.failed), len(s.failed) + len(s.outcomes)) for s in broken]
        many = [f"{lost} of {all_} of {s.label}" for s, lost, all_ in whole]
        found.append(f"Runs failed ({', '.join(many)}): the scores are those of the others.")
    for s in comparison.standings:
        if seeds >= LEAST > len(s.outcomes) > 0:
            found.append(f"With {len(s.outcomes)} seeds, the score of {s.label} is their mean.")
    labels = [s.label for s in comparison.standings if s.outcomes]
    for fact in (f for f in comparison.facts[2:3] if not f.equal):
        each = ", ".join(f"{label} {x}" for label, x in zip(labels, fact.values))
        found.append(f"The methods did not spend the same ({fact.name}: {each}).")
    if not (comparison.trials or comparison.notes):
        found.append("No method was tuned: each ran at its defaults, or at what it was given.")
    return found
