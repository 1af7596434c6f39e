"""A comparison on the terminal: its runs while they go, and what came of them."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from anypo.api.contest import Trial
from anypo.cli.progress import clock
from anypo.cli.screen import cell, table
from anypo.core.errors import UsageError
from anypo.report.compare import Scale, span
from anypo.report.comparison import (
    SPELT,
    Comparison,
    Standing,
    brief,
    caveats,
    gap,
    gap_span,
    headline,
    said,
    sentences,
)
from anypo.report.outcomes import UNITS, is_share, outcome
from anypo.report.statistics import LEAST, Pair
from anypo.report.text import visible

COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red")
BAR = 24
GROUPED = re.compile("(?<=\\d)\u202f(?=\\d)")
"""The thin space within a number, at which a line would be folded."""

OFTEN = 0.2
"""Seconds between redraws, at least."""

Event = dict[str, Any]
State = tuple[str, float]
"""`waiting`, `running` with the share that is spent, `done` with the score, `failed`."""


class Board:
    """Shows every run by method and seed; a line per finished run where nobody looks."""

    def __init__(self, screen: Console, metric: str) -> None:
        self.screen, self.metric = screen, metric
        self.states: dict[tuple[str, str], dict[int, State]] = {}
        self.live: Live | None = None
        self.started, self.drawn = time.monotonic(), 0.0
        self.began: dict[str, float] = {}

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.update(self.lines(), refresh=True)
            self.live.stop()

    def notice(self, text: str) -> None:
        """A sentence above the board."""
        self.screen.print(Text(visible(text), style="dim"), soft_wrap=True)

    def tell(self, trial: Trial, event: Event) -> None:
        """What happens to a run."""
        state = self._state(trial, event)
        self.states.setdefault((trial.label, trial.tuning), {})[trial.seed] = state
        final = state[0] in ("done", "failed") and "before" not in event
        if final and (state[0] == "failed" or not self.screen.is_terminal):
            self.screen.print(cell(self._line(trial, event, state)), soft_wrap=True)
        if not self.screen.is_terminal or (not final and time.monotonic() - self.drawn < OFTEN):
            return
        if self.live is None:
            self.live = Live(console=self.screen, auto_refresh=False, transient=True)
            self.live.start()
        self.drawn = time.monotonic()
        self.live.update(self.lines(), refresh=True)

    def _state(self, trial: Trial, event: Event) -> State:
        if "row" in event:
            return "running", spent(trial, event["row"])
        if "begin" in event:
            self.began[trial.out] = time.monotonic()
            return "running", 0.0
        if "failed" in event:
            return "failed", 0.0
        return ("done", self._score(trial)) if "done" in event else ("waiting", 0.0)

    def _score(self, trial: Trial) -> float:
        try:
            made = outcome(Path(trial.out), self.metric)
            self.metric = self.metric or made.metric
            return made.score
        except UsageError:  # said once, at the end
            return math.nan

    def _line(self, trial: Trial, event: Event, state: State) -> str:
        name = f"{trial.label} seed {trial.seed}" + (f", {trial.tuning}" if trial.tuning else "")
        if state[0] == "failed":
            return f"{name} failed: {event['failed']}"
        seconds = time.monotonic() - self.began.get(trial.out, self.started)
        return f"{name}: {self._shown(state[1])} ({clock(seconds)})"

    def _shown(self, score: float) -> str:
        known = is_share(self.metric) and 0 <= score <= 1
        return f"{100 * score:.0f} %" if known else f"{score:.3g}"

    def lines(self) -> Group:
        """A row per method: its seeds with their scores, or how far each is."""
        grid = Table.grid(padding=(0, 2))
        for (label, tried), seeds in self.states.items():
            if tried and all(state == "done" for state, _ in seeds.values()):
                continue
            name = Text(visible(label), style="bold")
            name.append(f" {visible(tried)}" if tried else "", style="dim")
            grid.add_row(name, *(self._cell(state) for _, state in sorted(seeds.items())))
        states = [state for seeds in self.states.values() for state in seeds.values()]
        count = Counter(state for state, _ in states)
        over = count["done"] + count["failed"]
        passed = time.monotonic() - self.started
        words = f"{over} of {len(states)} runs, {clock(passed)} spent{self._left(states, passed)}"
        return Group(grid, Text(words, style="dim"))

    def _left(self, states: list[State], passed: float) -> str:
        part = sum(1.0 if s in ("done", "failed") else x for s, x in states) / len(states)
        sure = part > 0.03 and part < 1 and self.began
        return f", about {clock(passed * (1 - part) / part)} left" if sure else ""

    def _cell(self, state: State) -> Text:
        what, x = state
        if what == "done":
            return Text(self._shown(x), style="bold green")
        if what == "failed":
            return Text("failed", style="bold red")
        if what == "waiting":
            return Text("·", style="dim")
        done = round(8 * x)
        return Text("━" * done, style="cyan").append("─" * (8 - done), style="dim")


def spent(trial: Trial, row: Event) -> float:
    """About which share of its budget a run has spent."""
    s = trial.settings
    if most := s.get("max_completions"):
        part = row.get("step", 0) * (row.get("sampled") or 0) / most
    elif most := s.get("max_tokens"):
        part = row.get("num_tokens", 0) / most
    else:
        part = row.get("step", 0) / max(s["steps"], 1)
    return min(part, 1.0)


# ── what came of it ──────────────────────────────────────────────────────────────────────────────


def show(screen: Console, c: Comparison) -> None:
    """Who is ahead, the scores with what they cost, the pairs, and what to know of them."""
    colours = {s.label: COLOURS[k % len(COLOURS)] for k, s in enumerate(by_name(c))}
    screen.print()
    screen.print(cell(headline(c), "bold green" if c.winner else "bold"))
    for text in sentences(c):
        indent(screen, text)
    screen.print()
    screen.print(scores(c, colours))
    screen.print(costs(c))
    if c.pairs:
        screen.print(chances(c))
    equal = "; ".join(f"{f.name} {f.values[0]}" for f in c.facts if f.equal) or "nothing"
    other = "; ".join(f.name for f in c.facts if not f.equal) or "nothing"
    said_ = [*caveats(c), *c.notes, tuned(c), f"Equal: {equal}.", f"Not equal: {other}."]
    for text in filter(None, said_):
        indent(screen, text, "dim")
    screen.print()
    screen.print(cell(f"everything: {c.out}"), soft_wrap=True)
    screen.print(cell(f"page:       {c.page}"), soft_wrap=True)


def indent(screen: Console, text: str, style: str = "") -> None:
    """A sentence, two characters in; folded where someone looks, one line for a script."""
    shown = cell(GROUPED.sub("", text), style)
    if screen.is_terminal:
        screen.print(Padding(shown, (0, 0, 0, 2), expand=False))
    else:
        screen.print(cell("  ").append_text(shown), soft_wrap=True)


def by_name(c: Comparison) -> list[Standing]:
    """The methods in an order that does not follow their scores."""
    return sorted(c.standings, key=lambda s: s.label)


def scores(c: Comparison, colours: dict[str, str]) -> Table:
    """One row per method, best first: every seed with the interval, the middle and the mean."""
    few, scale = len(c.seeds) < LEAST, Scale.of(c)
    low, high = (scale.label(x)["said"] for x in (scale.low, scale.high))
    axis = f"{low}{' ' * max(BAR - len(low) - len(high), 1)}{high}"
    middle = ("mean",) if few else ("interquartile mean", "mean")
    rows = [_row(c, s, scale, colours[s.label], len(middle)) for s in c.standings]
    title = f"{c.metric}, {len(c.seeds)} seeds, {brief(c.amount)} {c.unit} each; 95 % intervals"
    made = table(("", axis, *middle), rows, title, right=middle)
    made.columns[1].no_wrap, made.columns[1].min_width = True, BAR
    return made


def _row(c: Comparison, s: Standing, scale: Scale, colour: str, means: int) -> list[Any]:
    failed = f" ({len(s.failed)} failed)" if s.failed else ""
    name = cell(s.label, "bold").append(failed, style="red")
    if s.typical is None or s.mean is None:
        return [name, "no finished run", *[""] * means]
    middles = (s.typical, s.mean)[:means]
    return [name, bar(scale, s, colour), *(f"{said(c, m.value)} ({span(c, m)})" for m in middles)]


def bar(scale: Scale, s: Standing, colour: str) -> Text:
    """An interval in characters: a line for it, strokes for seeds, a dot for the middle."""
    place = lambda x: min(int(scale.at(x) / 100 * BAR), BAR - 1)  # noqa: E731
    assert s.typical is not None
    made, ends = ["·"] * BAR, sorted((place(s.typical.low), place(s.typical.high)))
    made[ends[0] : ends[1] + 1] = "━" * (ends[1] - ends[0] + 1)
    for x in s.scores.values():
        made[place(x)] = "┿"
    made[place(s.typical.value)] = "●"
    text = Text(no_wrap=True)
    for x in made:
        text.append(x, style="dim" if x == "·" else colour)
    return text


def costs(c: Comparison) -> Table:
    """One row per method: what the level cost, and what a whole run did."""
    units = [c.unit, *(u for u in UNITS if u != c.unit)]
    columns = ("", f"to {said(c, c.level)}", *units)
    rows = [_cost(c, s, units) for s in c.standings if s.outcomes]
    title = f"Cost: median {c.unit} to reach {said(c, c.level)}; of a whole run, on average"
    return table(columns, rows, title, right=columns[1:])


def _cost(c: Comparison, s: Standing, units: list[str]) -> list[Any]:
    cost = brief(s.reached.get(c.unit, math.inf))
    cost += "" if s.reachers == len(s.outcomes) else f" ({s.reachers} of {len(s.outcomes)})"
    return [cell(s.label, "bold"), cost, *(brief(s.spent(u)) for u in units)]


def chances(c: Comparison) -> Table:
    """One row per pair."""
    joint = f", for all {len(c.pairs)} differences at once" if len(c.pairs) > 1 else ""
    unit = " in points" if c.share else ""
    columns = ("", f"difference{unit}", "chance to be better", "ahead")
    rows = [_pair(c, p) for p in c.pairs]
    title = f"First less second, means; 95 % intervals{joint}"
    return table(columns, rows, title, right=columns[1:3])


def _pair(c: Comparison, p: Pair) -> list[Any]:
    d, known = p.difference, math.isfinite(p.difference.low)
    around = f" ({gap_span(c, d.low, d.high)})" if known else " (no spread)"
    lead = c.leads(p)
    chance = f"{p.chance.value:.2f} ({p.chance.low:.2f} to {p.chance.high:.2f})"
    more = f", {p.more} more seeds" if p.more and len(c.pairs) > SPELT else ""
    ahead = cell(lead, "bold green") if lead else cell(f"no winner{more}", "dim")
    return [f"{p.first} and {p.second}", gap(c, d.value) + around, chance, ahead]


def tuned(c: Comparison) -> str:
    """How the methods were tuned; empty where they were not."""
    if not c.trials:
        return ""
    return "Tuned: " + "; ".join(f"{s.label} {s.tuned}" for s in by_name(c) if s.tuned) + "."
