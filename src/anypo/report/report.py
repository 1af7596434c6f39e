"""`report.html`: one self-contained page about a run, safe to open whatever a model wrote."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby, product
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anypo.backends.load_task import about
from anypo.core.errors import UsageError
from anypo.report import charts, method, repeat
from anypo.report.answers import examples, side_by_side
from anypo.report.completions import browsable, recorded
from anypo.report.findings import findings
from anypo.report.run import RunData, load, share
from anypo.report.spent import spent
from anypo.report.text import script_json, visible
from anypo.report.verdict import verdict

HERE = Path(__file__).parent
SIDES = {"seen": "seen in training", "held_out": "held out"}
NOUNS = {"preference": "Pairs", "demonstration": "Answers"}
CAPTIONS = {
    "preference": (
        "Pairs in which the better answer scores higher, with 95 % intervals (Wilson); a tie is "
        "wrong, so that a policy which is its own reference begins at 0 %"
    ),
    "demonstration": "How likely the given answers are, token by token",
}
LIKELIHOOD = {
    "nll": "surprise, nats per token",
    "perplexity": "perplexity",
    "mean_token_accuracy": "tokens that are the likeliest",
}
SCRIPTS = ("page.js", "page_charts.js", "page_completions.js", "page_live.js")


def write_report(out: Path) -> Path:
    """Write `report.html` into a run's folder, finished or not; returns its path.

    Whether it learned and how sure that is, answers before and after, curves, completions by
    iteration, the method to its last field, and how to repeat it. The page loads nothing, and its
    policy forbids it to: the only script is its own, by hash, and model text reaches the page as
    text nodes alone. Raises `UsageError` for a folder that holds no run.
    """
    run = load(Path(out))
    target, partial = run.out / "report.html", run.out / "report.partial"
    partial.write_text(rendered(run), "utf-8")
    os.replace(partial, target)
    return target


def learning_curve(out: Path, png: Path) -> Path:
    """Draw held-out accuracy and reward of a run into a PNG file; returns its path."""
    run = load(Path(out), completions=False)
    if not run.series("reward"):
        raise UsageError(f"{out} has no finished iteration yet: there is no curve to draw")
    charts.learning_curve(run, png, _title(run))
    return png


def rendered(run: RunData, live: Mapping[str, Any] | None = None) -> str:
    """The page as text; a live one asks its server for news.

    `live`: the `stamp` of what it shows, and `every` how many seconds it asks for another one.
    """
    return _template().render(context(run, live))


@lru_cache(1)
def _template() -> Any:
    loader = FileSystemLoader(HERE)
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("page.html")


@lru_cache(1)
def script() -> tuple[str, str]:
    """The page's only script, and the source that its policy allows."""
    text = "\n".join((HERE / name).read_text("utf-8") for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return text, f"'sha256-{digest}'"


def policy(live: bool = False) -> str:
    """The page's content security policy: nothing is loaded; a live page may ask its own server."""
    ask = " connect-src 'self';" if live else ""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {script()[1]};{ask} "
        "base-uri 'none'; form-action 'none'"
    )


def context(run: RunData, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Everything that the template shows."""
    drawn, constant = charts.drawn(run)
    shown = [{**vars(c), "svg": Markup(c.svg), "number": i} for i, c in enumerate(drawn)]
    prompts, head, tail = examples(run.completions)
    data: dict[str, Any] = {"live": bool(live), "charts": [c.cursor for c in drawn]}
    if live:
        data |= {"steps": [], **live, "recorded": list(recorded(run.out))}
    else:
        data |= browsable(run.completions)
    return {
        "title": _title(run),
        "live": bool(live),
        "policy": policy(bool(live)),
        "status": _status(run, bool(live)),
        "facts": _facts(run),
        "verdict": verdict(run),
        "scores": _scores(run),
        "likelihood": _likelihood(run),
        "caption": CAPTIONS.get(run.kind, "Greedy, exact answers, with 95 % intervals (Wilson)"),
        "doctor": findings(run),
        "task": _task(run),
        "prompts": {"shown": prompts, "head": head, "tail": tail},
        "answers": {} if run.given else side_by_side(run.completions),
        "given": run.given,
        "charts": [(g, list(c)) for g, c in groupby(shown, lambda c: c["group"])],
        "constant": constant,
        "spent": spent(run),
        "left_out": "" if live else run.left_out,
        "recorded": bool(run.completions),
        "method": method.described(run),
        "repeat": repeat.recipe_of(run),
        "style": Markup((HERE / "page.css").read_text("utf-8")),
        "script": Markup(script()[0]),
        "data": Markup(script_json(data)),
    }


def _title(run: RunData) -> str:
    names = [_name(run.facts.get(k)) for k in ("policy", "task")]
    return visible(" · ".join(str(n) for n in (run.facts.get("method"), *names) if n))


def _name(settings: Any) -> str:
    return str(settings.get("name", "")) if isinstance(settings, Mapping) else ""


def _status(run: RunData, live: bool) -> tuple[str, str]:
    """How a run stands, in a word and in a sentence."""
    if run.stopped:
        return "ended early", visible(run.stopped)
    if run.ended:
        return "finished", ""
    made = "This page was made while the run went on, or after it was interrupted."
    return "unfinished", "" if live else made


STEPS = {
    "language": "tokens sampled",
    "control": "steps in the environment",
    "generator": "steps sampled",
    "preference": "tokens read",
    "demonstration": "tokens read",
}
"""What a run's steps are, by the kind of its task."""


def _facts(run: RunData) -> list[tuple[str, str]]:
    """The line of numbers at the top."""
    seconds = sum(row.get("step_time") or 0.0 for row in run.rows)
    wanted = run.setting("steps", run.last)
    found = [("iterations", f"{run.last}" + (f" of {wanted}" if wanted > run.last else ""))]
    if seconds >= 60:
        found.append(("minutes of training", f"{seconds / 60:.1f}"))
    else:
        found.append(("seconds of training", f"{seconds:.0f}"))
    if run.rows and run.rows[-1].get("num_tokens"):
        what = STEPS.get(run.kind, "tokens or steps sampled")
        found.append((what, charts.short(run.rows[-1]["num_tokens"])))
    return found


def _scores(run: RunData) -> list[dict[str, Any]]:
    """Accuracy by side, before and after; of a run that goes on, at its last evaluation."""
    found, noun = [], NOUNS.get(run.kind, "Questions")
    measured = [row for row in run.rows if row.get("held_out/total")]
    latest = {} if run.ended or not measured else measured[-1]
    for side, when in product(SIDES, ("before", "after")):
        scores = run.scores.get(when, latest if when == "after" else {})
        if point := share(scores, side):
            counts = scores[f"{side}/correct"], scores[f"{side}/total"]
            percent = [100 * x for x in (point.value, point.low, point.high)]
            said = when if when in run.scores else f"iteration {latest['step']}"
            named = {"side": f"{noun} {SIDES[side]}", "kind": when, "when": said}
            found.append({**named, "counts": counts, "percent": percent})
    return found


def _likelihood(run: RunData) -> list[tuple[str, str, str, str]]:
    """Side, measure, before and after of given answers."""
    before, after = (run.scores.get(when, {}) for when in ("before", "after"))
    found = []
    for side, (name, words) in product(SIDES, LIKELIHOOD.items()):
        values = [scores.get(f"{side}/{name}") for scores in (before, after)]
        if any(v is not None for v in values):
            shown = ("–" if v is None else charts.short(v) for v in values)
            found.append((f"Answers {SIDES[side]}", words, *shown))
    return found


KINDS = {
    "control": "An environment: the policy acts step by step, and every step pays a reward.",
    "preference": "Pairs of answers, of which one was chosen and one rejected; nothing is sampled.",
    "demonstration": "Answers to imitate; nothing is sampled.",
}
"""What a kind of task asks, where the task itself says nothing."""


def _task(run: RunData) -> dict[str, Any]:
    """What was asked of the policy."""
    settings = run.facts.get("task")
    settings = dict(settings) if isinstance(settings, Mapping) else {}
    known = "name", "kind", "train", "held_out", "reward", "dataset"
    noun = NOUNS.get(run.kind, "Questions").lower()
    rows = {
        "kind": settings.get("kind"),
        f"{noun} to train on": settings.get("train"),
        f"{noun} held out": settings.get("held_out"),
        "reward": settings.get("reward") or (None if run.given else "the task's own"),
        "data": settings.get("dataset"),
        **{k.replace("_", " "): v for k, v in settings.items() if k not in known},
    }
    shown = [(k, visible(v)) for k, v in rows.items() if v is not None and v not in ({}, "")]
    name = _name(settings)
    said = about(name) or KINDS.get(run.kind, "")
    return {"name": visible(name), "about": method.marked(visible(said)), "rows": shown}
