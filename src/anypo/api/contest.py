"""A comparison as it is planned: who takes part, what each may spend, which runs that makes."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from anypo.api.names import find
from anypo.core.dump import dump
from anypo.core.errors import UsageError, nearest
from anypo.core.recipe import Recipe
from anypo.engine.settings import Settings
from anypo.engine.validate import UNUSED

UNITS = ("completions", "tokens", "iterations")
LIMITS = {"completions": "max_completions", "tokens": "max_tokens"}
PLAN = "compare.json"

TAKEN = frozenset(
    "seed steps patience max_time max_tokens max_completions max_cost hourly_price stop_at stall"
    " hourly_price".split()
)
"""Settings that a comparison decides itself."""

PREFIX = "recipe."
FIRST_TUNING_SEED = 1000
MEASUREMENTS = 10
"""Evaluations along a run, unless `eval_every` says otherwise."""


@dataclass(frozen=True)
class Contender:
    """One side of a comparison: a method with its arguments and fields, or a recipe of one's own.

    Parameters
    ----------
    label : how it is called in the comparison; its runs live in a folder of that name.
    method : the method's name; empty for a recipe of one's own.
    arguments : of the method. fields : path → value, set in the resolved recipe.
    own : that recipe.
    """

    label: str
    method: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    own: Recipe | None = None

    @property
    def recipe(self) -> Recipe:
        """The resolved recipe."""
        made = find(self.method)(**self.arguments) if self.own is None else self.own
        for path, value in self.fields.items():
            made = made.set(path, value)
        return made.check(self.label)

    def with_(self, name: str, value: Any) -> Contender:
        """The same with an argument of its method, or a field as `recipe.PATH`, at a value."""
        if name.startswith(PREFIX):
            changed = {**self.fields, name.removeprefix(PREFIX): value}
            return Contender(self.label, self.method, self.arguments, changed, self.own)
        changed = {**self.arguments, name: value}
        return Contender(self.label, self.method, changed, self.fields, self.own)

    @property
    def given(self) -> dict[str, str]:
        """Arguments and fields as texts, as `anypo train` records them."""
        paths = {f"{PREFIX}{path}": value for path, value in self.fields.items()}
        return {name: str(value) for name, value in {**self.arguments, **paths}.items()}


Given = str | Recipe | Contender


def contenders(given: Sequence[Given] | Mapping[str, Given]) -> list[Contender]:
    """Who takes part; `UsageError` for unknown or ambiguous names, and for fewer than two."""
    named = isinstance(given, Mapping)
    items = list(given.items()) if named else [("", g) for g in given]
    found = [_contender(label, g) for label, g in items]
    labels = [c.label for c in found]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(
                f"{label!r} takes part twice: tell them apart, for example {label}:ARGUMENT=VALUE"
            )
    if len(found) < 2:
        raise UsageError("a comparison needs at least two methods, or two folders of runs")
    return found


def _contender(label: str, given: Given) -> Contender:
    if isinstance(given, Contender):
        return given
    if isinstance(given, Recipe):
        if not label:
            raise UsageError('a recipe needs a name: compare({"mine": recipe, "grpo": "grpo"})')
        return Contender(label, own=given)
    name = find(given).info.name
    return Contender(label or name, name)


# ── budgets ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Budget:
    """What every run may spend: an amount of completions, tokens (or steps), or iterations."""

    unit: str
    amount: int
    horizon: int = 1
    kind: str = "language"

    def settings(self, recipe: Recipe, prompts: int) -> dict[str, Any]:
        """The run settings that end a run of a recipe where its budget is spent.

        Iterations are bounded too, far above what it takes, for a recipe that hardly samples.
        """
        expected = self.iterations(recipe, prompts)
        most = {"completions": 10 * expected + 10, "tokens": self.amount, "iterations": self.amount}
        limit = {LIMITS[self.unit]: self.amount} if self.unit in LIMITS else {}
        often = max(round(expected / MEASUREMENTS), 1)
        whole = {"steps": most[self.unit], "eval_every": often, "record_every": often, **limit}
        return {k: v for k, v in whole.items() if k not in UNUSED[self.kind]}

    def iterations(self, recipe: Recipe, prompts: int) -> int:
        """About how many iterations spend it; of tokens, if every answer is as long as it may."""
        if self.unit == "iterations":
            return self.amount
        size = prompts * recipe.sampling.group * (self.horizon if self.unit == "tokens" else 1)
        return max(math.ceil(self.amount / size), 1)


def budget(text: str, first: Recipe, task: Any, settings: Settings) -> Budget:
    """The budget that a text names: `completions`, `5000`, `200000 tokens`, `40 iterations`.

    Without an amount it is what the first method asks for in `settings.steps` iterations. The unit
    is completions where none is named, and steps of the environment (`tokens`) in control.
    """
    found = re.fullmatch(r"\s*(\d+)?\s*([a-z]+)?\s*", text)
    unit = found[2] or ("tokens" if task.kind == "control" else "completions") if found else ""
    if found is None or unit not in UNITS:
        raise UsageError(
            f"budget={text!r}: write completions, tokens or iterations, with an amount before it "
            f"if you like, such as '5000 tokens'{nearest(unit, UNITS)}"
        )
    horizon = settings.horizon or getattr(task, "horizon", 1)
    asked = settings.steps * settings.prompts * first.sampling.group
    amounts = {"completions": asked, "tokens": asked * horizon, "iterations": settings.steps}
    if unit == "tokens" and not found[1] and task.kind != "control":
        raise UsageError("how many tokens a run takes is not known before: write '200000 tokens'")
    amount = int(found[1]) if found[1] else amounts[unit]
    if amount < 1:
        raise UsageError(f"budget={text!r}: a run must be allowed to spend something")
    return Budget(unit, amount, horizon, task.kind)


# ── tuning ───────────────────────────────────────────────────────────────────────────────────────

Tried = dict[str, Any]
"""Names of settings, arguments and fields → the values of one trial."""


def tuning(
    tune: Mapping[str, Sequence[Any]], members: Sequence[Contender]
) -> dict[str, list[Tried]]:
    """Each contender's trials: every combination of the values that are its own.

    A name is a setting, an argument of the methods, or `recipe.PATH`; one that is meant for a
    single contender is written `LABEL.NAME`. Raises `UsageError` where a contender would get
    another number of trials than the others, or where a name is nobody's.
    """
    labels = [c.label for c in members]
    found: dict[str, list[Tried]] = {}
    for c in members:
        own = {}
        for name, values in tune.items():
            label, _, rest = name.partition(".")
            if label not in labels:
                own[name] = values
            elif label == c.label:
                own[rest] = values
        for name, values in own.items():
            _tunable(name, values, c)
        found[c.label] = [dict(zip(own, chosen)) for chosen in product(*own.values())]
    counts = {label: len(trials) for label, trials in found.items()}
    if len({*counts.values()}) > 1:
        said = ", ".join(f"{label} {n}" for label, n in counts.items())
        raise UsageError(f"tuning must be equal, and these trials are not: {said}")
    return found if tune else {}


def _tunable(name: str, values: Sequence[Any], c: Contender) -> None:
    if not values:
        raise UsageError(f"tune {name}: give the values to try, {name}=A,B")
    if name in TAKEN:
        raise UsageError(f"{name} is the comparison's own and cannot be tuned")
    own = find(c.method).info.parameters if c.method else {}
    known = [f.name for f in fields(Settings) if f.name not in TAKEN]
    if name not in own and name not in known and not name.startswith(PREFIX):
        near = nearest(name, [*own, *known])
        cure = "" if near else "; write LABEL.NAME for what only one of them has"
        raise UsageError(f"{c.label} has no setting or argument {name!r}{near}{cure}")


def applied(c: Contender, tried: Tried) -> tuple[Contender, dict[str, Any]]:
    """A contender under the values of a trial, and the settings among them."""
    known, settings = {f.name for f in fields(Settings)}, {}
    own = find(c.method).info.parameters if c.method else {}
    for name, value in tried.items():
        if name in known and name not in own:
            settings[name] = value
        else:
            c = c.with_(name, value)
    return c, settings


def written(tried: Mapping[str, Any]) -> str:
    """`lr=1e-05, clip=0.1`."""
    return ", ".join(f"{name}={value}" for name, value in tried.items())


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Trial:
    """One run: whose it is, under which seed and settings, and where; plain data for a worker."""

    label: str
    seed: int
    out: str
    name: str
    recipe: Any
    given: Mapping[str, str]
    settings: Mapping[str, Any]
    common: Mapping[str, Any]
    tuning: str = ""

    @property
    def words(self) -> list[str]:
        """The command line that makes this run alone; empty for a recipe of one's own."""
        if not self.name:
            return []
        common = {k: v for k, v in self.common.items() if v}
        inner = {f"task.{k}": v for k, v in common.pop("task_options", {}).items()}
        options = {**self.given, **common, **inner, **self.settings, "out": self.out}
        pairs = [[f"--{k.replace('_', '-')}", str(v)] for k, v in options.items()]
        return ["train", self.name, *(word for pair in pairs for word in pair)]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def trial(
    c: Contender,
    seed: int,
    out: Path,
    spend: Budget,
    settings: Mapping[str, Any],
    common: Mapping[str, Any],
    tried: Tried | None = None,
    folder: str = "",
) -> Trial:
    """The run of a contender under a seed, with the values of a trial where it is tuned."""
    made, own = applied(c, tried or {})
    recipe, whole = made.recipe, {**settings, **own}
    prompts = whole.get("prompts", Settings.prompts)
    whole = {**spend.settings(recipe, prompts), **whole, "seed": seed}
    whole["patience"] = whole["steps"] + 1  # having nothing left to learn is no failure here
    place = out / slug(c.label) / (folder or f"seed-{seed}")
    text = written(tried) if folder and tried else ""
    return Trial(
        c.label, seed, str(place), made.method, dump(recipe), made.given, whole, dict(common), text
    )


def slug(text: str) -> str:
    """A text as the name of a folder."""
    return "".join(c if c.isalnum() or c in "-_.=" else "_" for c in text)


# ── the plan on disk ─────────────────────────────────────────────────────────────────────────────


def claim(out: Path, plan: Mapping[str, Any]) -> None:
    """Take a folder for a comparison, or go on in it; contenders and seeds may be added.

    Raises `UsageError` where it holds another comparison, or other files.
    """
    file, here = out / PLAN, json.loads(json.dumps(plan))
    if file.exists():
        there = json.loads(file.read_text("utf-8"))
        members = {**there["contenders"], **here["contenders"]}
        for label in (x for x in there["contenders"] if members[x] != there["contenders"][x]):
            raise UsageError(_other(out, label, "another recipe", "this one"))
        for key in (k for k in here if k != "contenders" and there.get(k) != here[k]):
            raise UsageError(_other(out, key, there.get(key), here[key]))
        here["contenders"] = members
    elif out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty and holds no comparison: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(here, indent=1))
    os.replace(partial, file)


def _other(out: Path, key: str, there: Any, here: Any) -> str:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        inner = next(k for k in [*there, *here] if there.get(k) != here.get(k))
        return _other(out, f"{key}.{inner}", there.get(inner), here.get(inner))
    return (
        f"{out} holds another comparison ({key}: {there!r} there, {here!r} here). Choose another "
        "--out, or remove that folder"
    )


def seeds(given: int | Iterable[int]) -> list[int]:
    """`5` is 0 to 4; a list is itself."""
    found = list(range(given)) if isinstance(given, int) else list(given)
    if len(found) < 2 or len({*found}) < len(found) or min(found) < 0:
        raise UsageError(f"seeds={given!r}: give at least two, how many or which, all different")
    return found
