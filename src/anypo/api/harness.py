"""`harness`: a language policy on the tasks of lm-eval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from anypo.backends.policies import load_policy
from anypo.core.errors import UsageError


@dataclass(frozen=True)
class Metric:
    """A metric of a task as lm-eval has it, with its standard error where it knows one."""

    task: str
    name: str
    value: float
    stderr: float | None
    questions: int


def harness(
    policy: Any,
    tasks: Sequence[str],
    *,
    include: str | Path = "",
    n: int = 0,
    chat: bool = False,
    seed: int = 0,
    precision: str = "",
) -> list[Metric]:
    """Evaluate a policy on tasks of lm-eval, and return their metrics.

    Parameters
    ----------
    policy : a language policy by name, a folder (a run's is its last checkpoint), or an object.
    tasks : names as `lm-eval ls tasks` lists them.
    include : a folder of further tasks, in YAML.
    n : most questions of each task (0 = all).
    chat : whether contexts go through the policy's chat template.
    seed : of examples in a context, and of samples. precision : of forward passes.

    Raises `UsageError` for what a user can mend.
    """
    if find_spec("lm_eval") is None:
        raise UsageError("lm-eval is not installed: pip install 'anypo[lm-eval]' brings it")
    if isinstance(policy, (str, Path)):
        policy = load_policy(str(policy), precision=precision, seed=seed)
    from anypo.backends import lm_eval

    out = lm_eval.run(policy, tasks, include=str(include), n=n, chat=chat, seed=seed)
    return [m for task, row in out["results"].items() for m in _metrics(task, row, out)]


def _metrics(task: str, row: dict[str, Any], out: dict[str, Any]) -> list[Metric]:
    questions = out["n-samples"].get(task, {}).get("effective", row.get("sample_len", 0))
    found = []
    for key, value in row.items():
        name, _, kind = key.partition(",")
        if not kind or name.endswith("_stderr") or not isinstance(value, (int, float)):
            continue
        stderr = row.get(f"{name}_stderr,{kind}")
        shown = name if kind == "none" else f"{name}, {kind}"
        known = float(stderr) if isinstance(stderr, (int, float)) else None
        found.append(Metric(task, shown, float(value), known, int(questions)))
    return found
