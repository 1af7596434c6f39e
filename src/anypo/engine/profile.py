"""Where the time of iterations goes: metrics of one, and a table of all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anypo.core.clock import OTHER, Lap
from anypo.engine.state import State

Row = Mapping[str, Any]
Profiler = Callable[[State, Row, Sequence[Row]], dict[str, float]]
"""(state, metrics of the iteration, rows of those before) to more metrics, after each iteration."""

BETWEEN = frozenset({"evaluation", "records", "checkpoint"})
"""Spans between iterations: `step_time` does not hold them."""

SAMPLING = ("sampling", "prefill", "decode")
LEARNING = ("forward", "backward", "optimizer")
RATES = {"sampled": SAMPLING, "learned": LEARNING}
"""Rate of tokens → the spans in whose time they are counted."""

MEANS = {
    "sampling": "what surrounds prefill and decode; all of it in an environment",
    "prefill": "prompts through the network",
    "decode": "completions, token by token",
    "rewards": "the reward function",
    "reference": "log-probabilities of the reference model",
    "old_logp": "log-probabilities before the update",
    "values": "the critic before the update",
    "score_norm": "gradients of single trajectories",
    "credit": "advantages",
    "forward": "the update's way through the network",
    "backward": "the way back",
    "optimizer": "clipping, and the step of the weights",
    "after": "log-probabilities after the update",
    "evaluation": "held-out questions, between iterations",
    "records": "stored completions, between iterations",
    "checkpoint": "between iterations",
    "other": "everything else",
}
"""Span → what happens in it."""

PARTS = {
    "prefill": "matrix products",
    "decode": "matrix products",
    "forward": "matrix products, those of reference and old_logp as well",
    "backward": "matrix products",
    "reading": "weights and cache, once for each decoding step",
    "optimizer": "its bytes",
}
"""Part of the floor → what is in it."""


def nobody(state: State, facts: Row, rows: Sequence[Row]) -> dict[str, float]:
    """No further metrics."""
    return {}


def spans(lap: Lap, step_time: float) -> dict[str, float]:
    """`time/SPAN` in seconds: of the iteration, where they add up to `step_time`, and around it.

    `time/checkpoint` and `time/records` are those of the iteration before, which end after its
    row is written.
    """
    named = {name: x for name, x in lap.seconds.items() if name != OTHER}
    rest = step_time - sum(x for name, x in named.items() if name not in BETWEEN)
    return {f"time/{name}": x for name, x in {**named, OTHER: max(rest, 0.0)}.items()}


def rates(lap: Lap, sampled: int) -> dict[str, float]:
    """`tokens_per_second/sampled` and `/learned`, each in the time of its own spans.

    Sampled are the tokens of completions; learned are the positions that a backward pass scores,
    where one that several completions share, the last of their prompt, counts once.
    """
    learned = sum(n * p.scored for p, n in lap.passes.items() if p.kind == "backward")
    counts = {"sampled": sampled, "learned": learned}
    spent = {name: sum(lap.seconds.get(s, 0.0) for s in own) for name, own in RATES.items()}
    return {f"tokens_per_second/{k}": counts[k] / spent[k] for k in RATES if counts[k] and spent[k]}


@dataclass(frozen=True)
class Profile:
    """Where the time of a run went.

    Parameters
    ----------
    iterations : how many are in it.
    seconds : of each span in the median iteration.
    shares : of each span in the time of all iterations, and of what lies between them.
    iteration : seconds of the median iteration, what lies between left out (`step_time`).
    rates : tokens per second in the median iteration.
    floor : seconds by part in the median iteration, see `backends.floor`; empty without one.
    ratio : median of the iterations' time over their floor; 0 without one.
    bandwidth : bytes per second that memory was measured at; 0 without a floor.
    """

    iterations: int
    seconds: dict[str, float]
    shares: dict[str, float]
    iteration: float
    rates: dict[str, float]
    floor: dict[str, float] = field(default_factory=dict)
    ratio: float = 0.0
    bandwidth: float = 0.0


def profile_of(
    rows: Sequence[Row],
    rest: Mapping[str, float],
    floors: Sequence[Mapping[str, float]] = (),
    bandwidth: float = 0.0,
) -> Profile:
    """The profile of the rows that have spans, of which there must be some.

    `rest`: seconds by span after the last row; `floors`: by part, of the last iterations.
    """
    rows = [row for row in rows if f"time/{OTHER}" in row]
    names = [n for row in rows for n in row if n.startswith("time/") and n != "time/collect"]
    columns = {n.removeprefix("time/"): [row.get(n) or 0.0 for row in rows] for n in names}
    between = {name: rest.get(name, 0.0) for name in BETWEEN if rest.get(name)}
    sums = {n: sum(columns.get(n, ())) + between.get(n, 0.0) for n in {**columns, **between}}
    total = sum(sums.values())
    order = sorted(sums, key=lambda n: (n == OTHER, n in BETWEEN, -sums[n]))
    times = [row["step_time"] for row in rows]
    ratios = [t / sum(f.values()) for t, f in zip(times[-len(floors) :], floors) if any(f.values())]
    parts = dict.fromkeys(name for f in floors for name in f)
    return Profile(
        iterations=len(rows),
        seconds={n: statistics.median(columns.get(n, [0.0])) for n in order},
        shares={n: sums[n] / total for n in order},
        iteration=statistics.median(times),
        rates={k: statistics.median(v) for k in RATES if (v := _rate(rows, k))},
        floor={name: statistics.median(f.get(name, 0.0) for f in floors) for name in parts},
        ratio=statistics.median(ratios) if ratios else 0.0,
        bandwidth=bandwidth,
    )


def _rate(rows: Sequence[Row], name: str) -> list[float]:
    values = (row.get(f"tokens_per_second/{name}") for row in rows)
    return [x for x in values if x]
