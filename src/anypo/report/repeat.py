"""How to repeat a run: the command, the seed, the settings, the versions, the machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from anypo.engine.settings import Settings
from anypo.report.run import RunData
from anypo.report.text import visible

GROUPS = ("policy", "settings", "versions", "hardware")


def recipe_of(run: RunData) -> dict[str, Any]:
    """The command as it was typed, or one that does the same, and what else counts."""
    typed = str(run.facts.get("command", ""))
    made = "" if typed.startswith("anypo train") else command(run)
    groups = [(name, _rows(name, run.facts.get(name))) for name in GROUPS]
    return {
        "command": visible(typed),
        "made": visible(made),
        "seed": visible(run.setting("seed", "")),
        "groups": [(name, rows) for name, rows in groups if rows],
    }


def _rows(name: str, values: Any) -> list[tuple[str, str, bool]]:
    """Name, value, and whether it is the default, of a group of facts."""
    if not isinstance(values, Mapping):
        return []
    usual = {f.name: f.default for f in fields(Settings)} if name == "settings" else {}
    rows = {str(k): v for k, v in values.items()}
    return [
        (visible(k), visible(v) if v != "" else "–", k in usual and usual[k] == v)
        for k, v in rows.items()
    ]


def command(run: RunData) -> str:
    """A command line that does what a run from Python did; empty where there is none.

    A recipe or a task that was handed over as an object has no name to be called by.
    """
    asked, method = run.facts.get("asked"), str(run.facts.get("method", ""))
    policy = run.facts.get("policy")
    if not isinstance(asked, Mapping) or method in ("", "recipe"):
        return ""
    words = ["anypo", "train", method]
    if isinstance(policy, Mapping) and policy.get("name"):
        words += ["--policy", str(policy["name"])]
    for option in ("task", "dataset", "reward"):
        words += [f"--{option}", str(asked[option])] if asked.get(option) else []
    for name, value in (asked.get("task_options") or {}).items():
        words += [f"--task.{name}", str(value)]
    for name, value in (run.facts.get("given") or {}).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    settings = run.facts.get("settings")
    for f in fields(Settings) if isinstance(settings, Mapping) else ():
        value = settings.get(f.name, f.default)
        words += [f"--{f.name.replace('_', '-')}", str(value)] if value != f.default else []
    return shlex.join(words)
