"""Policies by name, whatever library they come from."""

from __future__ import annotations

from typing import Any

from anypo.core.errors import UsageError
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


def load_policy(name: str, *, task: Any, lora: int = 0, precision: str = "", seed: int = 0) -> Any:
    """A fresh policy for a task; an empty name is the default of the task's kind.

    Raises `UsageError` for an unknown name, or for an option that the policy does not have.
    """
    name = name or DEFAULTS[task.kind]
    small = {"categorical": CategoricalPolicy, "flow": FlowPolicy}
    if name in small:
        for option, given in (("lora", lora), ("precision", precision)):
            if given:
                raise UsageError(f"policy {name!r} has no option {option!r}: leave it out")
        kind = small[name].kind
        if task.kind != kind:
            raise UsageError(
                f"policy {name!r} is of kind {kind}, task {task.name!r} of kind {task.kind}: "
                f"choose another, for example {DEFAULTS[task.kind]}"
            )
        return small[name].for_task(task, seed=seed)
    if task.kind in ("control", "generator"):
        raise UsageError(
            f"task {task.name!r} is of kind {task.kind}, and {name!r} is a language policy: "
            f"choose {DEFAULTS[task.kind]}"
        )
    from anypo.backends.language_load import load_policy as load_language

    return load_language(name, lora=lora, precision=precision, seed=seed)
