"""Rewards, data and trackers: what is named in a file, under the names that it has here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anypo.translate.express import written
from anypo.translate.plan import Plan

BUILT_IN = {
    "accuracy_reward": "accuracy",
    "reasoning_accuracy_reward": "accuracy",
    "think_format_reward": "think",
    "get_soft_overlong_punishment": "overlong",
    "get_repetition_penalty_reward": "repetition",
    "get_cosine_scaled_reward": "cosine",
}
"""TRL's reward functions → those here."""

TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")


def judge(plan: Plan, given: Mapping[str, Any], file: str) -> None:
    """Rewards with weights, the data's file, and trackers, into the options of a plan."""
    if functions := given.get("reward_funcs"):
        _rewards(plan, functions, given.get("reward_weights"), file)
    if data := given.get("train_dataset"):
        _dataset(plan, str(data))
    if named := given.get("report_to") or given.get("trainer.logger"):
        _trackers(plan, named)
    if given.get("tensorboard_log"):
        plan.options["report_to"] = "tensorboard"


def _rewards(plan: Plan, functions: Any, weights: Any, file: str) -> None:
    names = functions if isinstance(functions, list) else [functions]
    shown = [_named(str(name), file) for name in names]
    if not isinstance(weights, list) or len(weights) != len(names):
        weights = [1.0] * len(names)
    plain = all(w == 1 for w in weights)
    parts = shown if plain else [f"{n}={written(float(w))}" for n, w in zip(shown, weights)]
    plan.options["reward"] = ",".join(parts)
    if any(str(name).startswith(":") for name in names):
        text = "the file is imported to find it: keep what trains behind if __name__ == '__main__'"
        plan.say("reward_funcs", text, "same")
    if any(s in BUILT_IN.values() for s in shown):
        text = "TRL's own functions have relatives here: read anypo train --help and their pages"
        plan.say("reward_funcs", text)


def _named(name: str, file: str) -> str:
    """`file.py:function` of a name in the same file, of a dotted path, or of TRL's own."""
    plain = name.split("(")[0].rsplit(".", 1)[-1]
    if plain in BUILT_IN:
        return BUILT_IN[plain]
    if name.startswith(":"):
        return f"{file or 'rewards.py'}{name}"
    module, dot, function = name.rpartition(".")
    return f"{module.replace('.', '/')}.py:{function}" if dot and module.isascii() else name


def _dataset(plan: Plan, data: str) -> None:
    if not data.startswith("hub:"):
        plan.options["dataset"] = data
        return
    name = data.removeprefix("hub:")
    text = (
        f"nothing is fetched: save it once, load_dataset({name!r}, split='train')"
        ".to_parquet('data.parquet'), and give --dataset data.parquet"
    )
    plan.say("train_dataset", text, "none")


def _trackers(plan: Plan, named: Any) -> None:
    words = [str(w) for w in named] if isinstance(named, list) else str(named).split(",")
    chosen = [w for w in words if w in TRACKERS] if words != ["all"] else list(TRACKERS)
    if chosen:
        plan.options["report_to"] = ",".join(chosen)
