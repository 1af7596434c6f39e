"""A translated configuration: line by line, as a command, as a file, as a recipe."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import yaml

from anypo.core.combine import Chain, Plus, Product, SamplingChain, Times
from anypo.core.dump import dump
from anypo.core.neutral import Mean
from anypo.core.recipe import AXES, Recipe
from anypo.translate.express import Expression, leaves, written
from anypo.translate.given import Given, Source, Unread
from anypo.translate.plan import Plan
from anypo.translate.table import VERSIONS, Row, defaults, find, rows

ORDER = (
    "policy task dataset reward lora precision out steps prompts horizon temperature lr seed "
    "save_every eval_every eval_size report_to"
).split()
"""Options of a run, as they are written."""


@dataclass(frozen=True)
class Line:
    """One key of the source: where it stands, what becomes of it, and what there is to say."""

    line: int
    source: str
    verdict: str
    ours: str
    remark: str

    @property
    def silent(self) -> bool:
        """Whether it is a default that the source does not say."""
        return self.line == 0


@dataclass(frozen=True)
class Translation:
    """What a configuration of another library is here.

    `recipe` is the method as it was meant, `expression` what a command line can say of it, and
    `nearest` the recipe that this gives: they are the same where `exact`. `options` are those of
    the run, under the names of `Settings` and of `anypo train`.
    """

    library: str
    trainer: str
    lines: tuple[Line, ...]
    recipe: Recipe
    nearest: Recipe
    expression: Expression
    options: Mapping[str, Any]

    @property
    def exact(self) -> bool:
        """Whether the command gives the recipe that was meant."""
        return not self.beyond

    @property
    def gaps(self) -> list[Line]:
        """Lines that were not translated: no counterpart, unknown, or not readable."""
        return [x for x in self.lines if x.verdict in ("none", "unknown", "unread")]

    @property
    def words(self) -> list[str]:
        """The command, word by word."""
        return ["anypo", "train", self.expression.method, *self._flags()]

    @property
    def command(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.words)

    def _flags(self) -> list[str]:
        found = []
        for name, text in self._texts().items():
            option = (
                "--" + name.replace("_", "-") if not name.startswith("recipe.") else f"--{name}"
            )
            attached = text.startswith("-")
            found += [f"{option}={text}"] if attached else [option, text]
        return found

    def _texts(self) -> dict[str, str]:
        run = {k: written(self.options[k]) for k in ORDER if k in self.options}
        return {**run, **self.expression.options}

    @property
    def config(self) -> str:
        """A YAML file that `anypo train --config` reads."""
        head = f"# Translated from {VERSIONS[self.library]} ({self.trainer}).\n"
        texts = {"recipe": self.expression.method, **self._texts()}
        return head + "".join(f"{k}: {_scalar(v)}\n" for k, v in texts.items())

    @property
    def beyond(self) -> dict[str, Any]:
        """Axis → pieces that only Python can say."""
        names = (*AXES, "schedules")
        pairs = {n: (getattr(self.nearest, n), getattr(self.recipe, n)) for n in names}
        return {n: there for n, (here, there) in pairs.items() if dump(here) != dump(there)}

    @property
    def python(self) -> str:
        """The recipe in Python, where the command line cannot say it; empty where it can."""
        if self.exact:
            return ""
        own = "".join(f", {k}={_code(v)}" for k, v in self.expression.arguments.items())
        text = f'recipe = anypo.recipe("{self.expression.method}"{own})'
        axes = {n.split(".")[0] for n in self.expression.overrides} | set(self.beyond)
        changes = {n: getattr(self.recipe, n) for n in (*AXES, "schedules") if n in axes}
        shown = "".join(f"    {n}={_code(v)},\n" for n, v in changes.items())
        code = f"{text}.but(\n{shown})"
        return "\n".join([*_imports(changes, code), "", code])

    @property
    def json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "library": VERSIONS[self.library],
            "trainer": self.trainer,
            "lines": [vars(x) for x in self.lines],
            "command": self.command,
            "exact": self.exact,
            "python": self.python,
            "recipe": dump(self.recipe),
            "options": {k: v for k, v in self.options.items() if k in ORDER},
        }


def _scalar(text: str) -> str:
    """A text as YAML that is read back as it is."""
    plain = re.fullmatch(r"[\w./][\w./,:=-]*", text) and not text.endswith(":")
    if plain and ": " not in text:
        value = yaml.safe_load(text)
        if isinstance(value, str) or json.dumps(value) == text:
            return text
    return json.dumps(text, ensure_ascii=False)


INFIX = {Plus: "+", Product: "*", Times: "*", Chain: ">>", SamplingChain: ">>"}


def _code(value: Any) -> str:
    """A piece as it is written in Python: fields that are not the default's."""
    if isinstance(value, tuple):
        inner = ", ".join(map(_code, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_code(k)}: {_code(v)}" for k, v in value.items()) + "}"
    if not is_dataclass(value):
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
        return "math.inf" if value == float("inf") else text
    parts = [_code(getattr(value, f.name)) for f in fields(value)]
    if type(value) in INFIX:
        return f" {INFIX[type(value)]} ".join(parts)
    if isinstance(value, Mean):
        levels = ", ".join(f'"{level}"' for level in value.levels)
        return (
            f"Mean({levels}{'' if value.length == 'actual' else f', length={_code(value.length)}'})"
        )
    plain = {f.name: f.default for f in fields(value)}
    named = [f"{k}={_code(v)}" for k, v in vars(value).items() if v != plain.get(k)]
    return f"{type(value).__name__}({', '.join(named)})"  # pyright: ignore


def _imports(changes: Any, code: str) -> list[str]:
    """What the code of some pieces imports."""
    named = {v for v in leaves(changes).values() if isinstance(v, type) and v not in INFIX}
    lines = {f"from {cls.__module__} import {cls.__name__}" for cls in named}
    lines |= {"import math"} if "math.inf" in code else set()
    return sorted({"import anypo", *lines}, key=lambda x: (x.startswith("from"), x))


def lines(
    source: Source, plan: Plan, recipe: Recipe, options: Mapping[str, Any]
) -> tuple[Line, ...]:
    """Every key of the file in its order, then the defaults that matter."""
    known = rows(source.library, source.trainer)
    spoken = {r.key: r.default for r in known if r.spoken}
    there = {g.key for g in source.given}
    all_values = {**defaults(known), **source.values}
    unsaid = [Given(key, all_values.get(key)) for key in spoken if key not in there]
    wanted = [g for g in unsaid if _applies(source, g, all_values)]
    return tuple(_line(g, known, plan, recipe, options) for g in (*source.given, *wanted))


def _applies(source: Source, given: Given, values: Mapping[str, Any]) -> bool:
    """Whether a default that is not said matters: a critic's where there is a critic."""
    critic = values.get("algorithm.adv_estimator") == "gae"
    return critic or not (given.key.startswith("critic.") or given.key == "algorithm.lam")


def _line(
    given: Given, known: Iterable[Row], plan: Plan, recipe: Recipe, options: Mapping[str, Any]
) -> Line:
    value = _shown(given.value)
    source = f"{given.key} = {value}"
    row = find(known, given.key, given.value)
    verdict, remark = plan.notes.get(given.key, (row.verdict, row.remark) if row else ("", ""))
    if isinstance(given.value, Unread):
        text = "its value is known when it runs; the command goes without it"
        return Line(given.line, source, "unread", "", text)
    if row is None:
        return Line(given.line, source, "unknown", "", "look it up in that library's manual")
    quiet = verdict in ("idle", "none", "unread")
    ours = "" if quiet else "; ".join(filter(None, (_ours(o, recipe, options) for o in row.ours)))
    return Line(given.line, source, verdict, ours, remark)


def _shown(value: Any) -> str:
    if isinstance(value, Unread):
        return value.text
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return str(value)
    return json.dumps(value, default=str, ensure_ascii=False)


def _ours(name: str, recipe: Recipe, options: Mapping[str, Any]) -> str:
    """An option with its value, or a field of the recipe with its value, as they came out."""
    if name == "*python*":
        return "in Python, below"
    if name == "method":
        return ""
    if name.startswith("--"):
        value = options.get(name[2:].replace("-", "_"))
        return "" if value is None else f"{name} {written(value)}"
    found = leaves(recipe)
    if name[0].isupper():
        paths = [k for k, v in found.items() if isinstance(v, type) and v.__name__ == name]
        return "; ".join(f"{k} {_code(_at(recipe, k))}" for k in paths) or f"no {name}"
    path = name if name in found else _deep(found, name.split(".")[-1])
    if path in found and not isinstance(found[path], type):
        return f"{path} {written(found[path]) or '()'}"
    inside = any(k == name or k.startswith(f"{name}.") for k in found)
    return f"{name} {_code(_at(recipe, name))}" if inside else ""


def _deep(found: Mapping[str, Any], field: str) -> str:
    """Where a field is, whatever piece has it."""
    return next((k for k in found if k.split(".")[-1] == field), "")


def _at(recipe: Recipe, path: str) -> Any:
    node: Any = recipe
    for name in path.split("."):
        node = node[int(name)] if isinstance(node, tuple) else getattr(node, name)
    return node
