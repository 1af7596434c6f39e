"""Curves of a run, drawn by matplotlib as small SVGs whose colours are the page's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from anypo.report.run import Point, RunData

COLOURS = {
    "#010203": "var(--muted)",
    "#020304": "var(--grid)",
    "#030405": "var(--series)",
    "#040506": "var(--second)",
}
"""Placeholders that matplotlib draws with, and the page's variables that replace them."""

INK, GRID, SERIES, SECOND = COLOURS
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
}


@dataclass(frozen=True)
class Chart:
    """A curve: its title, what it says, the metrics of its lines, and those of its band."""

    title: str
    note: str
    lines: tuple[str, ...]
    band: tuple[str, str] | None = None
    log: bool = False
    change: Callable[[float], float] = float


CHARTS = (
    Chart("Reward", "mean over sampled trajectories", ("reward",)),
    Chart("Episode return", "mean over finished episodes", ("rollout/ep_rew_mean",)),
    Chart("Entropy", "of the sampled distribution, nats per step", ("entropy",)),
    Chart("KL to the reference", "per step", ("kl",)),
    Chart("KL to the old policy", "per step, against the start of the update", ("approx_kl",)),
    Chart("Importance ratio", "largest|smallest", ("ratio/max", "ratio/min"), log=True),
    Chart("Clip fraction", "share of steps without gradient", ("clip_ratio/region_mean",)),
    Chart(
        "Length",
        "mean; band from shortest to longest",
        ("completions/mean_length",),
        ("completions/min_length", "completions/max_length"),
    ),
    Chart("Cut off", "share of trajectories without an end", ("completions/clipped_ratio",)),
    Chart(
        "Groups with signal",
        "share of groups whose rewards differ",
        ("frac_reward_zero_std",),
        change=lambda x: 1 - x,
    ),
    Chart("Gradient norm", "before clipping", ("grad_norm",)),
    Chart(
        "Sampler vs trainer",
        "largest|mean gap of log-probabilities",
        (
            "sampling/sampling_logp_difference/max",
            "sampling/sampling_logp_difference/mean",
        ),
        log=True,
    ),
    Chart("Value loss", "of the critic", ("value_loss",)),
    Chart("Explained variance", "of returns, by the critic", ("explained_variance",)),
)
"""Every curve that a page may show; a `|` in a note parts the names of two lines."""


@dataclass(frozen=True)
class Drawn:
    """A chart for the page."""

    title: str
    note: str
    svg: str
    last: str


def drawn(run: RunData) -> tuple[list[Drawn], list[str]]:
    """The charts of a run, and sentences on metrics that never changed (they get no chart)."""
    charts, constant = [], []
    if points := run.accuracy("held_out"):
        note = "greedy, exact answers, with 95 % intervals"
        charts.append(_accuracy("Held-out accuracy", note, points))
    for chart in CHARTS:
        series = [[(k, chart.change(x)) for k, x in run.series(name)] for name in chart.lines]
        values = {x for line in series for _, x in line}
        if len(values) == 1 or (
            len(values) == 2 and all(len({x for _, x in s}) == 1 for s in series)
        ):
            constant.append(f"{chart.title} {', '.join(f'{x:.3g}' for x in sorted(values))}")
        elif values:
            charts.append(_chart(chart, series, run))
    return charts, constant


def _chart(chart: Chart, series: list[list[tuple[int, float]]], run: RunData) -> Drawn:
    def draw(axes: Axes) -> None:
        if chart.band:
            low, high = (dict(run.series(name)) for name in chart.band)
            steps = sorted(low.keys() & high.keys())
            bounds = [low[k] for k in steps], [high[k] for k in steps]
            axes.fill_between(steps, *bounds, color=SERIES, alpha=0.15, linewidth=0)
        for line, colour in zip(series, (SERIES, SECOND), strict=False):
            marker = "o" if len(line) == 1 else ""
            axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=3)
        if chart.log and all(x > 0 for line in series for _, x in line):
            _log_axis(axes, [x for line in series for _, x in line])

    last = " / ".join(f"{line[-1][1]:.3g}" for line in series if line)
    return Drawn(chart.title, chart.note, svg(chart.title, draw), last)


def _log_axis(axes: Axes, values: list[float]) -> None:
    """A logarithmic axis with few labels, where values differ enough to want one."""
    if max(values) < 10 * min(values):
        return
    axes.set_yscale("log")
    subs = (1.0,) if max(values) > 30 * min(values) else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _accuracy(title: str, note: str, points: list[Point]) -> Drawn:
    last = f"{100 * points[-1].value:.0f} %"
    return Drawn(title, note, svg(title, lambda axes: accuracy(axes, points, SERIES)), last)


def accuracy(axes: Axes, points: list[Point], colour: str) -> None:
    """A line of shares in percent, with their intervals as a band."""
    steps = [p.step for p in points]
    low, high = [100 * p.low for p in points], [100 * p.high for p in points]
    axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    values = [100 * p.value for p in points]
    axes.plot(steps, values, color=colour, marker="o", markersize=3, clip_on=False)
    axes.set_ylim(0, 100)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")


def svg(name: str, draw: Callable[[Axes], None]) -> str:
    """An SVG whose text is text and whose colours are CSS variables."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(4.0, 2.1), layout="constrained")
        figure.patch.set_alpha(0)
        axes: Any = figure.subplots()
        axes.patch.set_alpha(0)
        draw(axes)
        axes.grid(axis="y", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if axes.get_yscale() == "linear":
            axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.margins(x=0.02)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return _page_colours(file.getvalue())


def _page_colours(text: str) -> str:
    text = text[text.index("<svg") :]
    for placeholder, variable in COLOURS.items():
        text = text.replace(placeholder, variable)
    used = set(re.findall(r'(?:url\(#|href="#)([\w-]+)', text))
    drop = lambda m: m[0] if m[1] in used else ""  # noqa: E731
    text = re.sub(r' id="([^"]*)"', drop, text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'role="img"', text, count=1)


def learning_curve(run: RunData, png: Any, title: str) -> None:
    """Held-out accuracy and reward over the iterations, as one picture on a white ground."""
    style = {
        **STYLE,
        "font.size": 10,
        "axes.titlesize": 10.5,
        "axes.edgecolor": "#c9c8c4",
        "grid.color": "#e7e6e2",
    }
    style |= dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), "#52514e")
    with matplotlib.rc_context({**style, "text.color": "#0b0b0b", "lines.linewidth": 2}):
        figure = Figure(figsize=(9.6, 3.6), dpi=160, facecolor="white", layout="constrained")
        left, right = figure.subplots(1, 2)
        if points := run.accuracy("held_out"):
            accuracy(left, points, "#2a78d6")
            left.set_title("Exact answers on held-out questions, 95 % interval", loc="left")
        right.plot(*zip(*run.series("reward"), strict=True), color="#2a78d6", linewidth=1.5)
        if min(value for _, value in run.series("reward")) >= 0:
            right.set_ylim(bottom=0)
        right.set_title("Mean reward of the sampled answers", loc="left")
        for axes in (left, right):
            axes.grid(axis="y", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.tick_params(length=0)
        figure.suptitle(title, x=0.01, ha="left", weight="bold")
        figure.savefig(png)
