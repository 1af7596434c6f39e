"""`compare.html`: one self-contained page about a comparison, and its numbers for a script."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes

from anypo.engine.measure import Measure
from anypo.report import charts
from anypo.report.comparison import (
    Comparison,
    Standing,
    brief,
    caveats,
    gap_span,
    headline,
    points,
    said,
    sentences,
)
from anypo.report.outcomes import UNITS
from anypo.report.statistics import FREE, LEAST, Pair, bands
from anypo.report.text import visible

HERE = Path(__file__).parent
COLOURS = tuple(f"#0a0b{k:02d}" for k in range(1, 9))
"""Placeholders that matplotlib draws a method with; the page's `--m1` to `--m8` replace them."""

DASHES = ("-", "--", "-.", ":")
METRICS = {
    "held_out/accuracy": "greedy, exact answers to questions never trained on, after training",
    "held_out/nll": "surprise at answers never trained on, in nats per token; less is better",
    "rollout/ep_rew_mean": "mean return of episodes, over the last tenth of the run",
    "reward": "mean reward of what was sampled in the last tenth of the run",
}
"""What the usual metrics are, in words."""

PERCENT = "\u202f%"
Row = dict[str, Any]


def write_comparison(comparison: Comparison) -> Path:
    """Write `compare.html` where the comparison is kept; returns its path.

    Who is ahead, by how much and how sure that is; scores with intervals and every seed, curves,
    chances, what was equal and what was not, and links to the report of each run. The page loads
    nothing, and its policy forbids it to: the only script is its own, by hash.
    """
    partial = comparison.page.with_suffix(".partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.write_text(rendered(comparison), "utf-8")
    os.replace(partial, comparison.page)
    return comparison.page


def rendered(comparison: Comparison) -> str:
    """The page as text."""
    return _template().render(context(comparison))


@lru_cache(1)
def _template() -> Any:
    made = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("compare.html")


def policy(script: str) -> str:
    """The page's content security policy: nothing is loaded, and one script may run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def context(c: Comparison) -> Row:
    """Everything that the template shows."""
    script = (HERE / "page.js").read_text("utf-8")
    styles = [(HERE / name).read_text("utf-8") for name in ("page.css", "compare.css")]
    colours = {s.label: k % len(COLOURS) + 1 for k, s in enumerate(_by_name(c))}
    scale = Scale.of(c)
    return {
        "title": visible(_title(c)),
        "policy": policy(script),
        "style": Markup("\n".join(styles)),
        "script": Markup(script),
        "facts": _facts(c),
        "tone": "better" if c.winner else "unsure",
        "head": visible(headline(c)),
        "sentences": [visible(text) for text in sentences(c)],
        "caveats": [visible(text) for text in (*caveats(c), *c.notes)],
        "metric": visible(f"{c.metric}: {METRICS[c.metric]}" if c.metric in METRICS else c.metric),
        "ticks": [scale.label(x) for x in scale.ticks],
        "rows": [_row(c, s, scale, colours[s.label]) for s in c.standings],
        "level": visible(said(c, c.level)),
        "unit": c.unit,
        "curves": _curves(c, colours),
        "keys": [(visible(s.label), colours[s.label]) for s in _by_name(c) if s.outcomes],
        "pairs": _pairs(c, colours),
        "joint": len(c.pairs),
        "equal": [(visible(f.name), visible(f.values[0])) for f in c.facts if f.equal],
        "unequal": [
            (visible(f.name), [visible(v) for v in f.values]) for f in c.facts if not f.equal
        ],
        "labels": [visible(s.label) for s in c.standings if s.outcomes],
        "trials": _trials(c),
        "seeds": c.seeds,
        "runs": [_runs(c, s) for s in c.standings],
        "few": len(c.seeds) < LEAST,
        "command": visible(c.command),
    }


def _by_name(c: Comparison) -> list[Standing]:
    """In an order that does not follow the scores, so that a method keeps its colour."""
    return sorted(c.standings, key=lambda s: s.label)


def _title(c: Comparison) -> str:
    names = [s.label for s in c.standings]
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _facts(c: Comparison) -> list[tuple[str, str]]:
    known = {f.name: f for f in c.facts}
    found = [(name, known[name].values[0]) for name in ("task", "policy") if name in known]
    found += [("seeds", str(len(c.seeds))), (f"{c.unit} per run", brief(c.amount))]
    return [(name, visible(value)) for name, value in found]


# ── scores, drawn by the page itself ─────────────────────────────────────────────────────────────


class Scale:
    """From a score to a place between 0 and 100 on the tracks of the table."""

    def __init__(self, c: Comparison, low: float, high: float, ticks: list[float]) -> None:
        self.c, self.low, self.high, self.ticks = c, low, high, ticks

    @classmethod
    def of(cls, c: Comparison) -> Scale:
        """0 to 1 for shares; else as far as scores and finite intervals go."""
        if c.share:
            return cls(c, 0.0, 1.0, [0.0, 0.5, 1.0])
        ends = [x for s in c.standings if s.typical for x in (s.typical.low, s.typical.high)]
        values = [x for s in c.standings for x in s.scores.values()]
        values += [x for x in ends if math.isfinite(x)]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        pad = 0.04 * (high - low) or 0.5
        return cls(c, low - pad, high + pad, [low, (low + high) / 2, high])

    def at(self, x: float) -> float:
        """The place of a score."""
        return round(100 * min(max((x - self.low) / (self.high - self.low), 0.0), 1.0), 2)

    def label(self, x: float) -> Row:
        """A tick: where, and what it says."""
        return {"at": self.at(x), "said": said(self.c, x)}

    def track(self, measure: Measure) -> Row:
        """An interval and its middle."""
        ends = sorted((self.at(measure.low), self.at(measure.high)))
        return {"left": ends[0], "right": round(100 - ends[1], 2), "dot": self.at(measure.value)}


def span(c: Comparison, m: Measure) -> str:
    """`76 to 93`, or that there is none."""
    if not (math.isfinite(m.low) and math.isfinite(m.high)):
        return "–"
    if m.low == m.high:
        return "no spread"
    low = said(c, m.low)
    return f"{low.removesuffix(PERCENT)} to {said(c, m.high).removesuffix(PERCENT)}"


def _row(c: Comparison, s: Standing, scale: Scale, colour: int) -> Row:
    found: Row = {"label": visible(s.label), "colour": colour, "failed": len(s.failed)}
    found |= {"runs": len(s.outcomes), "best": s.label == c.winner}
    if s.typical is None or s.mean is None:
        return found | {"track": None}
    return found | {
        "track": scale.track(s.typical),
        "seeds": [
            {"at": scale.at(x), "said": f"seed {k}: {said(c, x)}"} for k, x in s.scores.items()
        ],
        "typical": said(c, s.typical.value),
        "interval": span(c, s.typical),
        "mean": said(c, s.mean.value),
        "mean_interval": span(c, s.mean),
        "reached": f"{brief(s.reached.get(c.unit, math.inf))}",
        "reachers": f"{s.reachers} of {len(s.outcomes)}",
        "spent": [brief(s.spent(u)) for u in ("completions", "tokens", "updates", "seconds")],
    }


def _pairs(c: Comparison, colours: Mapping[str, int]) -> list[Row]:
    ends = [
        abs(x) for p in c.pairs for x in (p.difference.low, p.difference.high, p.difference.value)
    ]
    most = max((x for x in ends if math.isfinite(x)), default=1.0) or 1.0
    place = lambda x: round(50 + 50 * min(max(x / most, -1.0), 1.0), 2)  # noqa: E731
    return [_pair(c, p, colours, place) for p in c.pairs]


def _pair(c: Comparison, p: Pair, colours: Mapping[str, int], place: Any) -> Row:
    d = p.difference
    known = math.isfinite(d.low)
    low, high = (place(d.low), place(d.high)) if known else (0.0, 100.0)
    return {
        "names": [(visible(x), colours[x]) for x in (p.first, p.second)],
        "ahead": visible(c.leads(p)),
        "track": {"left": low, "right": round(100 - high, 2), "dot": place(d.value)},
        "known": known,
        "difference": points(c, d.value),
        "interval": gap_span(c, d.low, d.high) if known else "–",
        "chance": f"{p.chance.value:.2f}",
        "chance_interval": f"{p.chance.low:.2f} to {p.chance.high:.2f}",
        "bar": {
            "left": round(100 * p.chance.low, 2),
            "right": round(100 - 100 * p.chance.high, 2),
            "dot": round(100 * p.chance.value, 2),
        },
        "more": "" if c.leads(p) or not p.more else f"{p.more} more seeds",
        "paired": p.paired,
        "count": d.count,
    }


def _trials(c: Comparison) -> list[Row]:
    return [
        {
            "label": visible(t["label"]),
            "values": visible(t["values"]),
            "score": "failed" if t["score"] is None else said(c, t["score"]),
            "chosen": bool(t.get("chosen")),
        }
        for t in c.trials
    ]


def _runs(c: Comparison, s: Standing) -> Row:
    """The scores of a method by seed, with links to reports that are there."""
    failed, made = dict(s.failed), {o.seed: o for o in s.outcomes}
    cells = []
    for seed in c.seeds:
        one = made.get(seed)
        report = one.out / "report.html" if one else None
        link = os.path.relpath(report, c.out) if report and report.is_file() else ""
        cells.append(
            {
                "said": visible(said(c, one.score)) if one else "failed" if seed in failed else "",
                "why": visible(failed.get(seed, "")),
                "link": Path(link).as_posix() if link else "",
            }
        )
    return {"label": visible(s.label), "cells": cells}


# ── curves ───────────────────────────────────────────────────────────────────────────────────────


def _curves(c: Comparison, colours: Mapping[str, int]) -> list[Row]:
    """The score along the budget, and along the time that was spent."""
    units = dict.fromkeys((c.unit, "seconds"))
    return (
        [_curve(c, unit, colours) for unit in units] if any(s.outcomes for s in c.standings) else []
    )


def _curve(c: Comparison, unit: str, colours: Mapping[str, int]) -> Row:
    grid, found = c.curves(unit)
    bounds = (0.0, 1.0) if c.share else FREE
    factor = 100 if c.share else 1
    lines = {label: [factor * x for x in bands(values, bounds)] for label, values in found.items()}

    def draw(axes: Axes) -> None:
        for label, (middle, low, high) in lines.items():
            colour, dash = COLOURS[colours[label] - 1], DASHES[(colours[label] - 1) % len(DASHES)]
            if found[label].shape[1] > 1:
                axes.fill_between(grid, low, high, color=colour, alpha=0.13, linewidth=0)
            axes.plot(grid, middle, color=colour, linestyle=dash, linewidth=1.8, clip_on=False)
        if c.share:
            axes.set_ylim(0, 100)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
        else:
            shown = np.concatenate([line[0] for line in lines.values()])
            axes.set_ylim(*_room(shown))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace(",", "\u202f"))

    text, _ = charts.plotted(f"compare {unit}", draw, (float(grid[0]), float(grid[-1])), (6.4, 2.9))
    for k, placeholder in enumerate(COLOURS, 1):
        text = text.replace(placeholder, f"var(--m{k})")
    ends = ", ".join(f"{label} {said(c, line[0][-1] / factor)}" for label, line in lines.items())
    return {"unit": unit, "svg": Markup(text), "said": visible(f"Scores at the end: {ends}")}


def _room(values: np.ndarray) -> tuple[float, float]:
    """Limits with some room, whatever wide bands of few seeds want."""
    low, high = float(values.min()), float(values.max())
    pad = 0.25 * (high - low) or 1.0
    return low - pad, high + pad


# ── numbers for a script ─────────────────────────────────────────────────────────────────────────


def as_dict(c: Comparison) -> Row:
    """The whole comparison as plain data; what is not finite is null."""
    return _finite(
        {
            "winner": c.winner,
            "head": headline(c),
            "sentences": sentences(c),
            "caveats": [*caveats(c), *c.notes],
            "metric": c.metric,
            "better": "more" if c.better > 0 else "less",
            "budget": {"unit": c.unit, "amount": c.amount},
            "level": c.level,
            "methods": [_standing(s) for s in c.standings],
            "pairs": [{**asdict(p), "ahead": c.leads(p), "more_seeds": p.more} for p in c.pairs],
            "facts": [asdict(f) for f in c.facts],
            "tuning": [{k: v for k, v in t.items() if k != "tried"} for t in c.trials],
            "command": c.command,
            "out": str(c.out),
            "page": str(c.page),
        }
    )


def _standing(s: Standing) -> Row:
    return {
        "method": s.label,
        "scores": {str(seed): x for seed, x in s.scores.items()},
        "interquartile_mean": asdict(s.typical) if s.typical else None,
        "mean": asdict(s.mean) if s.mean else None,
        "spent": {u: s.spent(u) for u in UNITS},
        "reached": {"median": s.reached, "runs": s.reachers},
        "tuned": s.tuned,
        "failed": {str(seed): why for seed, why in s.failed},
        "runs": {str(o.seed): str(o.out) for o in s.outcomes},
    }


def _finite(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {k: _finite(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(v) for v in x]
    if isinstance(x, float):
        return float(x) if math.isfinite(x) else None
    return x


def read_numbers(out: Path) -> Row:
    """What `comparison.json` holds."""
    return json.loads((out / "comparison.json").read_text("utf-8"))
