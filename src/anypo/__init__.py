"""anypo: any policy, any policy optimization."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anypo.api import (
        Run,
        Scores,
        compare,
        evaluate,
        export,
        generate,
        harness,
        load_policy,
        methods,
        recipe,
        train,
    )
    from anypo.backends.judge import Judge
    from anypo.backends.process_model import ProcessModel
    from anypo.backends.reward_model import RewardModel
    from anypo.backends.reward_server import RewardServer
    from anypo.core.errors import UsageError
    from anypo.core.method import method
    from anypo.core.recipe import Objective, Recipe
    from anypo.engine.callbacks import Callback
    from anypo.tasks.rewards import Part
    from anypo.translate import from_sb3, from_trl, from_verl

__version__ = "0.1.0"
__all__ = [
    "Callback",
    "Judge",
    "Objective",
    "Part",
    "ProcessModel",
    "Recipe",
    "RewardModel",
    "RewardServer",
    "Run",
    "Scores",
    "UsageError",
    "compare",
    "evaluate",
    "export",
    "from_sb3",
    "from_trl",
    "from_verl",
    "generate",
    "harness",
    "load_policy",
    "method",
    "methods",
    "recipe",
    "train",
]

_HOMES = {
    "Callback": "anypo.engine.callbacks",
    "Judge": "anypo.backends.judge",
    "Objective": "anypo.core.recipe",
    "Part": "anypo.tasks.rewards",
    "ProcessModel": "anypo.backends.process_model",
    "Recipe": "anypo.core.recipe",
    "RewardModel": "anypo.backends.reward_model",
    "RewardServer": "anypo.backends.reward_server",
    "Run": "anypo.api",
    "Scores": "anypo.api",
    "UsageError": "anypo.core.errors",
    "compare": "anypo.api",
    "evaluate": "anypo.api",
    "export": "anypo.api",
    "from_sb3": "anypo.translate",
    "from_trl": "anypo.translate",
    "from_verl": "anypo.translate",
    "generate": "anypo.api",
    "harness": "anypo.api",
    "load_policy": "anypo.api",
    "method": "anypo.core.method",
    "methods": "anypo.api",
    "recipe": "anypo.api",
    "train": "anypo.api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562): `import anypo` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'anypo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
