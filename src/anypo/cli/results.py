"""What a run and an evaluation came to, as tables or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from anypo.cli.profile import print_profile
from anypo.cli.screen import cell, console, print_json, table
from anypo.engine.metrics import interval

SIDES = {"seen": "questions seen in training", "held_out": "questions held out"}
TITLE = "Greedy exact-answer accuracy, with 95 % intervals"
PAIRS = {"seen": "pairs seen in training", "held_out": "pairs held out"}
TOLD_APART = "Pairs in which the better answer scores higher, with 95 % intervals"
DEMONSTRATIONS = {"seen": "answers seen in training", "held_out": "answers held out"}
LIKELY = "How likely the given answers are, token by token"
LIKELIHOOD = {
    "nll": "mean −log p",
    "perplexity": "perplexity",
    "mean_token_accuracy": "share of tokens that are the likeliest",
}
"""Name of a score → what it says."""


def print_run(run: Any, as_json: bool) -> None:
    """Scores before and after, the time that training took, and where everything is."""
    rows = run.metrics
    seconds = sum(row.get("step_time", 0.0) for row in rows)
    steps = rows[-1]["step"] if rows else 0
    if as_json:
        facts = {"scores": run.scores, "steps": steps, "minutes": round(seconds / 60, 3)}
        facts |= {"profile": asdict(run.profile)} if run.profile else {}
        print_json({**facts, **ends(rows), "out": str(run.out), "report": str(run.report)})
        return
    screen = console(sys.stdout)
    screen.print()
    sides, given = ("", "before", "after"), given_answers(rows)
    if shown := accuracy_rows(run.scores, PAIRS if given else SIDES):
        title = TOLD_APART if given else TITLE
        screen.print(table(sides, shown, title, right=sides[1:]))
    elif shown := likelihood_rows(run.scores):
        screen.print(table(sides, shown, LIKELY, right=sides[1:]))
    else:
        first = [(name, f"{a:.3f}", f"{b:.3f}") for name, (a, b) in ends(rows).items()]
        columns = ("", "first iteration", "last iteration")
        title = "On the data's answers" if given else "Sampled by the policy of then"
        screen.print(table(columns, first, title, right=columns[1:]))
    if run.profile:
        print_profile(screen, run.profile)
    spent = f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"
    screen.print(cell(f"{steps} iteration{'s' * (steps != 1)}, {spent} of training"))
    screen.print(cell(f"everything: {run.out}"), soft_wrap=True)
    screen.print(cell(f"report:     {run.report}"), soft_wrap=True)


def likelihood_rows(scores: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """How likely given answers are, before and after: three rows per side."""
    after = scores.get("after", {})
    both = [scores.get("before", {}), after]
    return [
        (f"{DEMONSTRATIONS[side]}: {told}", *(_shown(when.get(f"{side}/{name}")) for when in both))
        for side in DEMONSTRATIONS
        if f"{side}/nll" in after
        for name, told in LIKELIHOOD.items()
        if f"{side}/{name}" in after
    ]


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" if value >= 1000 else f"{value:.3f}"


def accuracy_rows(
    scores: Mapping[str, Mapping[str, Any]], named: Mapping[str, str] = SIDES
) -> list[tuple[str, ...]]:
    """One row per side of the questions: before and after."""
    sides = [s for s in named if f"{s}/total" in scores.get("after", {})]
    return [(named[s], *(accuracy(scores[when], s) for when in ("before", "after"))) for s in sides]


def given_answers(rows: list[dict[str, Any]]) -> bool:
    """Whether a run's answers are its data's: then nothing was sampled that has an entropy."""
    return any("nll" in row for row in rows) and not any("entropy" in row for row in rows)


def accuracy(scores: Mapping[str, Any], side: str) -> str:
    """`87 % (52 of 60; 76 to 93)`."""
    correct, total = scores[f"{side}/correct"], scores[f"{side}/total"]
    low, high = interval(correct, total)
    share = f"{100 * correct / total:.0f} %"
    return f"{share} ({correct} of {total}; {100 * low:.0f} to {100 * high:.0f})"


def ends(rows: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Outcomes of the first and the last iteration, under the names of the metrics.

    Rewards; of given answers, whose rewards are the data's, how well they are known or told apart.
    """
    wanted = ("accuracy", "nll") if given_answers(rows) else ("reward", "rollout/ep_rew_mean")
    names = [n for n in wanted if any(n in row for row in rows)]
    known = {n: [row[n] for row in rows if row.get(n) is not None] for n in names}
    return {n: (values[0], values[-1]) for n, values in known.items() if values}
