"""Policies by name, whatever library they come from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError
from anypo.engine import checkpoint
from anypo.policies.categorical import CategoricalPolicy
from anypo.policies.flow import FlowPolicy

DEFAULTS = {
    "language": "smollm2-135m",
    "preference": "smollm2-135m",
    "demonstration": "smollm2-135m",
    "control": "categorical",
    "generator": "flow",
}
"""Kind of a task → the policy that a run takes when none is named."""

SMALL: dict[str, Any] = {"categorical": CategoricalPolicy, "flow": FlowPolicy}


def run_of(name: str) -> Path | None:
    """The folder of a run, where a name is that of a run or of one of its checkpoints."""
    folder = Path(name).expanduser() if name else Path("?")
    if re.fullmatch(r"checkpoint-\d+", folder.name):
        folder = folder.parent
    return folder if (folder / "anypo.json").is_file() else None


def resolved(name: str) -> str:
    """The last checkpoint of a run's folder; any other name as it is.

    Raises `UsageError` for a run without a checkpoint.
    """
    folder = run_of(name)
    if folder is None or folder.resolve() != Path(name).expanduser().resolve():
        return name
    if not (there := checkpoint.found(folder)):
        raise UsageError(f"{folder} has no checkpoint yet: let the run write one")
    return str(there[-1])


def load_policy(
    name: str, *, task: Any = None, lora: int = 0, precision: str = "", seed: int = 0
) -> Any:
    """A policy by name, or out of the folder of a run, of a checkpoint or of a model.

    Parameters
    ----------
    name : of a policy, or a folder; empty for the default of the task's kind. A run's folder is
        its last checkpoint.
    task : what it is for; a small policy that is made afresh takes its sizes from it.
    lora : rank of a fresh adapter; 0 trains all weights.
    precision : of forward passes, for language policies (empty: a run's own, else what suits).
    seed : of what is made afresh.

    Raises `UsageError` for an unknown name, or for an option that the policy does not have.
    """
    if not name and task is None:
        raise UsageError(f"name a policy ({', '.join(DEFAULTS.values())}) or a folder")
    name = resolved(name or DEFAULTS[task.kind])
    written = _written(name)
    small = written.get("name", name)
    if small in SMALL:
        _fits(small, task, {"lora": lora, "precision": precision})
        if not written and task is None:
            raise UsageError(f"policy {name!r} is made for a task: name one, or a folder")
        return _read(written, name, task) if written else SMALL[small].for_task(task, seed=seed)
    if task is not None and task.kind in ("control", "generator"):
        raise UsageError(
            f"task {task.name!r} is of kind {task.kind}, and {name!r} is a language policy: "
            f"choose {DEFAULTS[task.kind]}"
        )
    from anypo.backends.language_load import load_policy as load_language

    precision = precision or _trained_in(name)
    return load_language(name, lora=lora, precision=precision, seed=seed)


def _trained_in(name: str) -> str:
    """The precision that a run was trained and measured in; empty for any other name."""
    if (folder := run_of(name)) is None:
        return ""
    facts = json.loads((folder / "anypo.json").read_text("utf-8"))
    return str((facts.get("policy") or {}).get("precision", ""))


def _written(name: str) -> dict[str, Any]:
    """What the folder of a small policy says of it; empty for any other name."""
    file = Path(name).expanduser() / "config.json"
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text("utf-8"))
    except ValueError:
        return {}
    ours = isinstance(config, dict) and config.get("kind") in ("control", "generator")
    return config if ours and config.get("name") in SMALL else {}


def _fits(small: str, task: Any, options: dict[str, Any]) -> None:
    for option, given in options.items():
        if given:
            raise UsageError(f"policy {small!r} has no option {option!r}: leave it out")
    kind = SMALL[small].kind
    if task is not None and task.kind != kind:
        raise UsageError(
            f"policy {small!r} is of kind {kind}, task {task.name!r} of kind {task.kind}: "
            f"choose another, for example {DEFAULTS[task.kind]}"
        )


def _read(written: dict[str, Any], name: str, task: Any) -> Any:
    """A small policy of the sizes that it was saved with."""
    for size in ("observation_size", "action_count", "dim"):
        here, there = written.get(size), getattr(task, size, None)
        if here is not None and there is not None and here != there:
            raise UsageError(
                f"{name} holds a policy with {size} {here}, and {task.name} has {there}: "
                "name the task that it was trained on"
            )
    sizes = {k: v for k, v in written.items() if k not in ("kind", "name")}
    policy = SMALL[written["name"]](**sizes)
    policy.load(Path(name).expanduser())
    return policy
