"""Which curves a report shows, and where their numbers come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from anypo.report.run import RunData
from anypo.report.text import visible

MOST_PARTS = 12
"""Reward parts that get a curve of their own; a page says how many do not."""

Points = list[tuple[int, float]]


@dataclass(frozen=True)
class Line:
    """A line of a chart: a metric, what it is called beside others, and how a value is changed."""

    metric: str
    label: str = ""
    change: Callable[[float], float] = float


@dataclass(frozen=True)
class Chart:
    """A curve: its group, its title, what it says, its lines, and the metrics of its band.

    `means` says what the band is.
    """

    group: str
    title: str
    note: str
    lines: tuple[Line, ...]
    band: tuple[str, ...] = ()
    means: str = ""
    log: bool = False


OUTCOME, POLICY, UPDATE, COST = "Outcome", "Policy", "Update", "Cost"

TABLE = """
Outcome | Reward | mean over sampled trajectories | reward
Outcome | Episode return | mean over finished episodes | rollout/ep_rew_mean
Outcome | Preference | share of pairs ranked as the data rank them | accuracy
Outcome | Margin | how far the preferred answer scores above the other | margin
Outcome | Surprise | −log-likelihood per token of the given answers, nats | nll in training; \
held_out/nll held out
Policy | Entropy | of the sampled distribution, nats per step | entropy
Policy | KL to the reference | per step, nats | kl
Policy | KL to the old policy | per step, against the start of the update | approx_kl
Policy | Length | steps, mean | completions/mean_length
Policy | Cut off | share of trajectories without an end | completions/clipped_ratio
Update | Importance ratio | | ratio/max largest; ratio/min smallest
Update | Clip fraction | share of steps without gradient | clip_ratio/region_mean by the bounds; \
clip_ratio/dual_mean by the dual clip
Update | Groups with signal | share of groups whose rewards differ | frac_reward_zero_std
Update | Staleness | iterations since sampling | staleness/max oldest; staleness/mean mean
Update | Gradient norm | before clipping | grad_norm
Update | Weights moved | ‖Δθ‖ / ‖θ‖ of an iteration | weights/moved
Update | Learning rate | | learning_rate
Update | Value loss | of the critic | value_loss
Update | Explained variance | of returns, by the critic | explained_variance
Update | Sampler gap | log-probability here and there | \
sampling/sampling_logp_difference/max largest; sampling/sampling_logp_difference/mean mean
Cost | Seconds | per iteration | step_time in all; time/collect collecting
Cost | Speed | tokens per second | tokens_per_second/sampled sampled; \
tokens_per_second/learned learned
Cost | Times the floor | an iteration over what its arithmetic takes | floor/ratio
Cost | Tokens or steps | in all, since the start | num_tokens
Cost | Money | in all, at the given price of an hour | cost
"""
LOG = {"Importance ratio", "Weights moved", "Sampler gap"}
BANDS = {
    "Length": (("completions/min_length", "completions/max_length"), "from shortest to longest"),
    "Importance ratio": (("ratio/p05", "ratio/p95"), "band: all but the lowest and highest 5 %"),
}


def _line(text: str) -> Line:
    metric, _, label = text.strip().partition(" ")
    change = (lambda x: round(1 - x, 12)) if metric == "frac_reward_zero_std" else float
    return Line(metric, label, change)


def _chart(row: str) -> Chart:
    group, title, note, metrics = (cell.strip() for cell in row.split("|"))
    band, means = BANDS.get(title, ((), ""))
    lines = tuple(map(_line, metrics.split(";")))
    return Chart(group, title, note, lines, band, means, title in LOG)


CHARTS = tuple(map(_chart, TABLE.strip().splitlines()))
"""Every curve that a page may show, but those of a reward's parts."""

GIVEN = {"Reward", "Groups with signal", "Cut off", "Staleness"}
"""Charts that say nothing of a run on given answers: all of this is the data's."""


def wanted(run: RunData) -> tuple[list[Chart], int]:
    """The charts for a run, with one for each part of its reward; how many parts got none."""
    found = list(CHARTS)
    if run.given:
        found = [c for c in found if c.title not in GIVEN]
    names = {n: re.fullmatch(r"rewards/(.+)/mean", n) for row in run.rows for n in row}
    parts = sorted(m[1] for m in names.values() if m)
    own = [
        Chart(
            OUTCOME,
            visible(f"Reward: {name}"),
            "mean of this part",
            (Line(f"rewards/{name}/mean"),),
        )
        for name in parts[:MOST_PARTS]
    ]
    place = 1 + max((i for i, c in enumerate(found) if c.title == "Reward"), default=-1)
    return found[:place] + own + found[place:], len(parts) - len(own)


def points(run: RunData, line: Line) -> Points:
    """Iteration and value of a line, where it has one."""
    return [(step, line.change(x)) for step, x in run.series(line.metric)]


def thinned(line: Points, most: int = 1000) -> Points:
    """A line of at most so many points: of each stretch the lowest and the highest."""
    if len(line) <= most:
        return line
    size = 2 * len(line) / (most - 2)
    kept = {0, len(line) - 1}
    for k in range((most - 2) // 2):
        stretch = range(round(k * size), min(round((k + 1) * size), len(line)))
        kept |= {min(stretch, key=lambda i: line[i][1]), max(stretch, key=lambda i: line[i][1])}
    return [line[i] for i in sorted(kept)]
