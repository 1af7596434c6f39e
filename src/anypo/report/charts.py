"""Curves of a run, drawn by matplotlib as small SVGs whose colours are the page's."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from anypo.report.curves import OUTCOME, Chart, Points, points, thinned, wanted
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
    "font.size": 10,
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
class Drawn:
    """A chart for the page: its words, its SVG, and the numbers that a cursor reads off it."""

    group: str
    title: str
    note: str
    labels: tuple[str, ...]
    svg: str
    last: str
    said: str
    cursor: dict[str, Any] = field(default_factory=dict)


def drawn(run: RunData) -> tuple[list[Drawn], list[str]]:
    """The charts of a run, and sentences on metrics that never changed (they get no chart)."""
    charts, constant = [], []
    if measured := run.accuracy("held_out"):
        charts.append(_accuracy(measured, run))
    chosen, more = wanted(run)
    for chart in chosen:
        lines = [points(run, line) for line in chart.lines]
        if any(x for line in lines for _, x in line):  # beside others, a line of zeros says nothing
            lines = [line if any(x for _, x in line) else [] for line in lines]
        values = {x for line in lines for _, x in line}
        if not values:
            continue
        if all(len({x for _, x in line}) <= 1 for line in lines) and run.last > 1:
            constant.append(f"{chart.title} {', '.join(map(short, sorted(values)))}")
        else:
            charts.append(_curve(chart, lines, run))
    if more:
        constant.append(f"curves of {more} more parts of the reward are left out")
    return charts, constant


def _curve(chart: Chart, lines: list[Points], run: RunData) -> Drawn:
    lines = [thinned(line) for line in lines]
    edges = [thinned(run.series(name)) for name in chart.band]
    band = all(edges) and len(edges) == 2

    def draw(axes: Axes) -> None:
        if band:
            low, high = map(dict, edges)
            steps = sorted(low.keys() & high.keys())
            bounds = [low[k] for k in steps], [high[k] for k in steps]
            axes.fill_between(steps, *bounds, color=SERIES, alpha=0.16, linewidth=0)
        for line, colour in zip(lines, (SERIES, SECOND), strict=False):
            marker = "o" if len(line) == 1 else ""
            if line:
                axes.plot(*zip(*line, strict=True), color=colour, marker=marker, markersize=3)
        axes.ticklabel_format(axis="y", useOffset=False)
        if chart.log and all(x > 0 for line in lines for _, x in line):
            _log_axis(axes, [x for line in lines for _, x in line])

    shown = [(line, points) for line, points in zip(chart.lines, lines, strict=True) if points]
    note = ", ".join(filter(None, (chart.note, chart.means if band else "")))
    labels = tuple(line.label for line, _ in shown if line.label and len(shown) > 1)
    words = (chart.group, chart.title, note, labels)
    return _drawn(words, [points for _, points in shown], draw, (0, run.last))


def _drawn(
    words: tuple[str, str, str, tuple[str, ...]],
    lines: list[Points],
    draw: Callable[[Axes], None],
    span: tuple[float, float],
    unit: str = "",
) -> Drawn:
    title = words[1]
    text, box = plotted(title, draw, span)
    last = " / ".join(short(line[-1][1]) + unit for line in lines)
    cursor = {**box, "unit": unit, "lines": [_plain(line) for line in lines]}
    return Drawn(*words, text, last, _said(title, lines[0], unit), cursor)


def _plain(line: Points) -> dict[str, list[float]]:
    return {"x": [k for k, _ in line], "y": [float(f"{x:.4g}") for _, x in line]}


def _said(title: str, line: Points, unit: str) -> str:
    """A curve in words, for those who do not see it."""
    (a, first), (b, last), values = line[0], line[-1], [x for _, x in line]
    low, high = (short(x) + unit for x in (min(values), max(values)))
    ends = f"{short(first)}{unit} at iteration {a}, {short(last)}{unit} at iteration {b}"
    return f"{title}: {ends}; between {low} and {high}"


def short(x: float) -> str:
    """A number in three digits, large ones with thin spaces: `0.537`, `1.43e-6`, `15 274`."""
    if abs(x) >= 1000 and abs(x) < 1e7:
        text = f"{x:,.0f}".replace(",", "\u202f")
    else:
        text = re.sub(r"e([+-])0?(\d+)", lambda m: f"e{m[1].strip('+')}{m[2]}", f"{x:.3g}")
    return f"\u2212{text[1:]}" if text.startswith("-") else text


def _log_axis(axes: Axes, values: list[float]) -> None:
    """A logarithmic axis with few labels, where values differ enough to want one."""
    if max(values) < 10 * min(values):
        return
    axes.set_yscale("log")
    subs = (1.0,) if max(values) > 30 * min(values) else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=5))
    axes.yaxis.set_major_formatter(lambda value, _: short(value))
    axes.yaxis.set_minor_locator(NullLocator())


def _accuracy(measured: list[Point], run: RunData) -> Drawn:
    line = [(p.step, 100 * p.value) for p in measured]
    what = "pairs told apart" if run.kind == "preference" else "greedy, exact answers"
    title, note = "Held-out accuracy", f"{what}; band: 95 % interval"
    draw = lambda axes: accuracy(axes, measured, SERIES)  # noqa: E731
    whole = [(k, float(f"{x:.0f}")) for k, x in line]
    return _drawn((OUTCOME, title, note, ()), [whole], draw, (0, run.last), "\u202f%")


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
    return plotted(name, draw)[0]


def plotted(
    name: str,
    draw: Callable[[Axes], None],
    span: tuple[float, float] | None = None,
    size: tuple[float, float] = (4.0, 2.1),
) -> tuple[str, dict[str, Any]]:
    """The SVG, and where its axes lie: `box` (left, top, right, bottom), `x`, `y`, `log`.

    `span`: the iterations from and to which its axis goes, those of the curve if not given; `size`:
    width and height in inches.
    """
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
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
        if span and span[1] > span[0]:
            axes.set_xlim(span[0], span[1] + 0.02 * (span[1] - span[0]))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        place, size = axes.get_position(), [72 * x for x in figure.get_size_inches()]
    box = [place.x0, 1 - place.y1, place.x1, 1 - place.y0]
    limits = {"x": [*axes.get_xlim()], "y": [*axes.get_ylim()]}
    numbers = {"box": [x * size[i % 2] for i, x in enumerate(box)], "size": size, **limits}
    rounded = {k: [float(f"{x:.5g}") for x in v] for k, v in numbers.items()}
    return _page_colours(file.getvalue()), {**rounded, "log": axes.get_yscale() == "log"}


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
        points, (series, said) = run.accuracy("held_out"), _learned(run)
        *left, right = figure.subplots(1, 2 if points else 1, squeeze=False)[0]
        if points:
            accuracy(left[0], points, "#2a78d6")
            left[0].set_title("Exact answers on held-out questions, 95 % interval", loc="left")
        right.plot(*zip(*series, strict=True), color="#2a78d6", linewidth=1.5)
        if min(value for _, value in series) >= 0:
            right.set_ylim(bottom=0)
        right.set_title(said, loc="left")
        for axes in (*left, right):
            axes.grid(axis="y", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.set_xlabel("iteration")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.tick_params(length=0)
        figure.suptitle(title, x=0.01, ha="left", weight="bold")
        figure.savefig(png)


def _learned(run: RunData) -> tuple[list[tuple[int, float]], str]:
    """The series that says best whether a run learned, and what it is."""
    given = run.given and run.series("nll")
    if given:
        return given, "Negative log-likelihood per token of the given answers"
    if returns := run.series("rollout/ep_rew_mean"):
        return returns, "Mean return of a finished episode"
    return run.series("reward"), "Mean reward of what was sampled"
