"""What an evaluation measured, as tables or as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from anypo.cli.results import SIDES, accuracy
from anypo.cli.screen import cell, table

TITLES = {
    "language": "Right answers, with 95 % intervals over questions",
    "control": "Return of an episode, with 95 % intervals",
    "generator": "Reward of a point, with 95 % intervals",
    "demonstration": "How likely the given answers are, with 95 % intervals over rows",
    "preference": "How often the preferred answer is the likelier one, with 95 % intervals",
}
LEGEND = (
    "pass@k: a right answer among k; maj@k: the most frequent of k is right; mean@{samples}: the "
    "mean score. {samples} samples for each question, temperature {temperature:g}, seed {seed}"
)


def print_scores(screen: Any, scores: Any) -> None:
    """One row for each measure, one column for each side."""
    title = TITLES.get(scores.settings["kind"], "With 95 % intervals")
    columns = [SIDES.get(side, side) for side in scores]
    rows = [(name, *(shown(scores, side, name) for side in scores)) for name in _names(scores)]
    screen.print(table(("", *columns), rows, title, right=columns))
    _print_legend(screen, scores)


def print_pairs(screen: Any, first: Any, second: Any) -> None:
    """For each side a table of the first, the second, and how far the first is ahead."""
    names = [scores.settings["policy"] for scores in (first, second)]
    for side, found in first.against(second).items():
        rows = [
            (name, *(shown(s, side, name) for s in (first, second)), *_ahead(first, pair))
            for name, pair in found.items()
        ]
        columns = ("first", "second", "first ahead by", "better : worse", "p")
        title = f"{SIDES.get(side, side)}: {names[0]} against {names[1]}"
        screen.print(table(("", *columns, ""), rows, title, right=columns))
    _print_legend(screen, first)
    text = "p: exact sign test on the questions where they differ (McNemar's for right and wrong)"
    screen.print(cell(text), soft_wrap=True)


def _names(scores: Any) -> list[str]:
    return list(dict.fromkeys(m for side in scores.values() for m in side.measures))


def _print_legend(screen: Any, scores: Any) -> None:
    if scores.settings["kind"] == "language" and scores.settings["samples"]:
        screen.print(cell(LEGEND.format(**scores.settings)), soft_wrap=True)


def shown(scores: Any, side: str, name: str) -> str:
    """`87 % (52 of 60; 76 to 93)`, `81 % (72 to 88)`, or `-12.3 (-14.1 to -10.5)`."""
    found = scores[side].measures.get(name) if side in scores else None
    if found is None:
        return ""
    if name == "greedy" and scores.settings["kind"] == "language":
        counts = {f"{side}/correct": scores[side].correct, f"{side}/total": scores[side].total}
        return accuracy(counts, side)
    if not (math.isfinite(found.low) and math.isfinite(found.high)):
        return f"{found.value:.4g}"
    if _is_share(scores, found):
        value, low, high = (f"{100 * x:.0f}" for x in (found.value, found.low, found.high))
        return f"{value} % ({low} to {high})"
    return f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g})"


def _is_share(scores: Any, found: Any) -> bool:
    return (
        scores.settings["kind"] in ("language", "preference") and 0 <= found.low <= found.high <= 1
    )


def _ahead(scores: Any, pair: Any) -> tuple[str, ...]:
    """Difference, counts, p and a verdict, which names nobody where the interval holds 0."""
    numbers = (pair.difference, pair.low, pair.high)
    if scores.settings["kind"] == "language":
        said = "{:+.0f} points ({:+.0f} to {:+.0f})".format(*(100 * x for x in numbers))
    else:
        said = "{:+.3g} ({:+.3g} to {:+.3g})".format(*numbers)
    verdict = "no difference shown"
    if not pair.low <= 0 <= pair.high:
        verdict = "first is better" if pair.low > 0 else "second is better"
    return said, f"{pair.wins} : {pair.losses}", f"{pair.p:.2g}", verdict


def plain(scores: Sequence[Any]) -> dict[str, Any]:
    """Side → numbers for a script; with a second policy also its numbers, and the differences."""
    first, *rest = scores
    found = {side: _numbers(first, held) for side, held in first.items()}
    for second in rest:
        found["against"] = {side: _numbers(second, held) for side, held in second.items()}
        pairs = first.against(second)
        found["ahead"] = {s: {m: finite(vars(p)) for m, p in v.items()} for s, v in pairs.items()}
    return found


def _numbers(scores: Any, side: Any) -> dict[str, Any]:
    measures = {name: finite(vars(m)) for name, m in side.measures.items()}
    if scores.settings["kind"] != "language":
        return {"total": side.total, "measures": measures}
    low, high = side.interval
    counts = {"correct": side.correct, "total": side.total, "accuracy": side.accuracy}
    return {**counts, "low": low, "high": high, "measures": measures}


def finite(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers of which a script gets null for what is not finite."""
    return {k: v if math.isfinite(v) else None for k, v in numbers.items()}
