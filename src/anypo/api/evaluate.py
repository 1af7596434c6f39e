"""`evaluate`: how good a policy is on a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anypo.backends.load_task import load_task
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core.errors import UsageError
from anypo.core.recipe import Recipe
from anypo.engine.metrics import interval
from anypo.engine.settings import Settings
from anypo.engine.state import State


@dataclass(frozen=True)
class Scores:
    """Greedy accuracy on a side of a task, with its 95 % Wilson interval."""

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """Share of exact answers."""
        return self.correct / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return interval(self.correct, self.total)


def evaluate(
    policy: Any = "",
    task: Any = "",
    n: int = 100,
    *,
    reward: Any = "",
    dataset: str | Path = "",
    seed: int = 0,
    precision: str = "",
    task_options: Mapping[str, Any] | None = None,
) -> dict[str, Scores]:
    """Greedy exact-answer accuracy of a policy on seen and held-out questions of a task."""
    if isinstance(task, str):
        options = dict(task_options or {})
        task = load_task(task, seed=seed, dataset=str(dataset), reward=reward, **options)
    if task.kind != "language":
        raise UsageError(f"evaluate scores language tasks; {task.name!r} is of kind {task.kind}")
    if isinstance(policy, str):
        policy = load_policy(policy, task=task, lora=0, precision=precision, seed=seed)
    policy.publish()
    state = State.start(Recipe(), policy, Settings(eval_size=n, seed=seed))
    out = Local(task).evaluate(state, seen=True)
    sides = [s for s in ("seen", "held_out") if f"{s}/total" in out]
    return {s: Scores(out[f"{s}/correct"], out[f"{s}/total"]) for s in sides}
