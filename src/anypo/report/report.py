"""`report.html`: one self-contained page about a run, safe to open whatever a model wrote."""

from __future__ import annotations

import base64
import hashlib
import os
from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anypo.core.errors import UsageError
from anypo.report import charts
from anypo.report.run import RunData, load, recipe_rows, share
from anypo.report.text import script_json, visible

HERE = Path(__file__).parent
SIDES = {"seen": "Questions seen in training", "held_out": "Questions held out"}


def write_report(out: Path) -> Path:
    """Write `report.html` into a run's folder, finished or not; returns its path.

    Curves as inline SVG, completions by iteration, the resolved recipe, scores with intervals, and
    what the run was made with. The page loads nothing, and its policy forbids it to: the only
    script is its own, by hash, and model text reaches the page as text nodes alone. Raises
    `UsageError` for a folder that holds no run.
    """
    run = load(Path(out))
    page = _environment().get_template("page.html").render(context(run))
    target, partial = run.out / "report.html", run.out / "report.partial"
    partial.write_text(page, "utf-8")
    os.replace(partial, target)
    return target


def learning_curve(out: Path, png: Path) -> Path:
    """Draw held-out accuracy and reward of a run into a PNG file; returns its path."""
    run = load(Path(out), completions=False)
    if not run.series("reward"):
        raise UsageError(f"{out} has no finished iteration yet: there is no curve to draw")
    charts.learning_curve(run, png, _title(run))
    return png


def _environment() -> Environment:
    loader = FileSystemLoader(HERE)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined)


def context(run: RunData) -> dict[str, Any]:
    """Everything that the template shows."""
    drawn, constant = charts.drawn(run)
    script = (HERE / "page.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {
        "title": _title(run),
        "facts": _facts(run),
        "scores": _scores(run),
        "ends": _ends(run),
        "charts": [{**vars(c), "svg": Markup(c.svg)} for c in drawn],
        "constant": constant,
        "left_out": run.left_out,
        "recorded": sum(map(len, run.completions.values())),
        "recipe": [(a, p, visible(v)) for a, p, v in recipe_rows(run.facts.get("recipe", {}))],
        "setup": _setup(run),
        "style": Markup((HERE / "page.css").read_text("utf-8")),
        "script": Markup(script),
        "script_hash": digest,
        "data": Markup(script_json(_completions(run))),
    }


def _title(run: RunData) -> str:
    method, task, policy = (run.facts.get(k) for k in ("method", "task", "policy"))
    names = [d.get("name", "") if isinstance(d, dict) else "" for d in (policy, task)]
    return visible(" · ".join(str(n) for n in (method, *names) if n))


def _facts(run: RunData) -> list[tuple[str, str]]:
    """The line of numbers at the top."""
    seconds = sum(row.get("step_time", 0.0) for row in run.rows)
    wanted = run.facts.get("settings", {}).get("steps", run.last)
    found = [
        ("iterations", f"{run.last}" + (f" of {wanted}" if wanted > run.last else "")),
        ("minutes of training", f"{seconds / 60:.1f}"),
    ]
    if run.rows and run.rows[-1].get("num_tokens"):
        found.append(
            ("tokens or steps sampled", f"{run.rows[-1]['num_tokens']:,}".replace(",", " "))
        )
    return found


def _scores(run: RunData) -> list[dict[str, Any]]:
    """Greedy accuracy by side, before and after."""
    found = []
    for side, when in product(SIDES, ("before", "after")):
        scores = run.scores.get(when, {})
        if point := share(scores, side):
            counts = scores[f"{side}/correct"], scores[f"{side}/total"]
            percent = [100 * x for x in (point.value, point.low, point.high)]
            found.append({"side": SIDES[side], "when": when, "counts": counts, "percent": percent})
    return found


def _ends(run: RunData) -> list[tuple[str, float, float]]:
    """Rewards of the first and last iteration, where a task has no exact answers."""
    names = {"rollout/ep_rew_mean": "Mean return of an episode", "reward": "Mean reward"}
    known = {label: run.series(name) for name, label in names.items()}
    return [(label, s[0][1], s[-1][1]) for label, s in known.items() if s]


def _setup(run: RunData) -> list[tuple[str, list[tuple[str, str]]]]:
    """Groups of names and values: how the run was made."""
    facts = run.facts
    top = [("command", facts.get("command", "")), ("method", facts.get("method", ""))]
    given = facts.get("given") or {}
    top += [("given", " ".join(f"{k}={v}" for k, v in given.items()))] if given else []
    groups = {k: facts.get(k) for k in ("policy", "task", "settings", "versions", "hardware")}
    flat = {k: list(v.items()) for k, v in groups.items() if isinstance(v, dict)}
    named = [("run", top), *flat.items()]
    return [(g, [(str(k), visible(v)) for k, v in pairs]) for g, pairs in named]


def _completions(run: RunData) -> dict[str, Any]:
    """Rows by iteration; what all prompts begin and end with is kept once."""
    rows = [row for rows in run.completions.values() for row in rows]
    prompts = sorted({str(row.get("prompt", "")) for row in rows})
    head = _whole_lines(common(prompts)) if len(prompts) > 1 else ""
    turned = sorted(p[len(head) :][::-1] for p in prompts)
    tail = _whole_lines(common(turned))[::-1] if len(prompts) > 1 else ""
    names = list(dict.fromkeys(k for row in rows for k in row if k != "step"))
    if all(row.get("score") == row.get("reward") for row in rows):
        names = [name for name in names if name != "score"]  # nothing shaped the task's score
    steps = []
    for step, found in run.completions.items():
        table = [[_inner(row, name, head, tail) for name in names] for row in found]
        steps.append({"step": step, "rows": table})
    return {"columns": names, "head": head, "tail": tail, "steps": steps}


def common(texts: list[str]) -> str:
    """What all of some sorted texts begin with."""
    first, last = texts[0], texts[-1]
    same = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(same, min(len(first), len(last)))]


def _whole_lines(text: str) -> str:
    """A text up to the end of its last line: a common part should not cut a word."""
    return text[: text.rfind("\n") + 1]


def _inner(row: dict[str, Any], name: str, head: str, tail: str) -> Any:
    value = row.get(name)
    if name != "prompt" or not isinstance(value, str):
        return value
    return value[len(head) : len(value) - len(tail)]
