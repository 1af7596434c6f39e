"""`anypo.json`: what makes a run this run, and whose a folder is."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from anypo.backends.load_reward import written
from anypo.core.dump import dump
from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.engine.settings import Settings


def describe(
    recipe: Recipe, policy: Any, task: Any, settings: Settings, name: str = "recipe"
) -> dict[str, Any]:
    """What makes a run this run, and what it ran on: the content of `anypo.json`."""
    return {
        "method": name,
        "recipe": dump(recipe),
        "policy": policy.settings(),
        "task": getattr(task, "settings", lambda: {"name": task.name})(),
        "settings": asdict(settings),
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        },
        "command": shlex.join(["anypo", *sys.argv[1:]]),
    }


def asked(task: Any, dataset: Any, reward: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """How a run's task was named, so that it can be made again; empty for objects."""
    text = written(reward)
    if not isinstance(task, str) or bool(text) != bool(reward):
        return {}
    plain = json.loads(json.dumps(dict(options), default=str))
    return {"task": task, "dataset": str(dataset), "reward": text, "task_options": plain}


LIBRARIES = "anypo torch numpy safetensors transformers peft reasoning-gym gymnasium".split()


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


IDENTITY = ("settings", "recipe", "policy", "task")

FREE = frozenset(
    "steps save_every eval_size token_budget patience record_every".split()
    + "max_time max_tokens max_completions max_cost hourly_price stop_at stall".split()
)
"""Settings that may change when a run goes on: they change no number of what is done already."""


def claim(out: Path, facts: dict[str, Any]) -> None:
    """Take a folder for a run; `UsageError` when it holds another run, or other files."""
    file = out / "anypo.json"
    if file.exists():
        there = json.loads(file.read_text())
        here = json.loads(json.dumps(facts))
        for key in IDENTITY:
            a, b = there.get(key), here[key]
            if key == "settings":
                a, b = ({k: v for k, v in x.items() if k not in FREE} for x in (a, b))
            if a != b:
                said = _difference(a, b, key)
                raise UsageError(_edited(out, said) or f"{out} holds another run ({said}). {CURE}")
    elif out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty and holds no run: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(facts, indent=1))
    os.replace(partial, file)


CURE = "Choose another --out, or remove that folder"


def _edited(out: Path, difference: str) -> str:
    """The sentence for a reward that is the same by name and another by content; else empty."""
    name, _, rest = difference.partition(".version: ")
    if not (rest and name.startswith("task.reward.")):
        return ""
    there, here = (word.split("'")[1][:12] for word in rest.split(", ")[:2] if "'" in word)
    return (
        f"the reward {name.removeprefix('task.reward.')!r} was changed since {out} was begun "
        f"(SHA-256 {there or 'unknown'} there, {here or 'unknown'} here), so its scores would not "
        f"be those of one run: put the reward back as it was to go on. Or: {CURE.lower()}"
    )


def _difference(a: Any, b: Any, path: str = "") -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return _difference(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))
    return f"{path}: {a!r} there, {b!r} here"
