"""From what a user writes to a task: names, Gymnasium environments, reasoning-gym and files."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from anypo.backends.load_reward import load_reward
from anypo.core.errors import UsageError, nearest
from anypo.tasks.dataset import SUFFIXES, check, read_jsonl
from anypo.tasks.reward_call import ground_truth
from anypo.tasks.task import Demonstrations, Given, Preferences, Problems, Row, Scorer, split

GYM = "reasoning_gym:"
BUILT_IN = ("arithmetic", "first_letter", "vowels", "eight_gaussians")
Function = Any
"""One reward or several, see `load_reward`."""


def load_task(
    name: str = "",
    *,
    seed: int = 0,
    dataset: str | Path = "",
    reward: Function = "",
    **params: Any,
) -> Any:
    """The task of that name, or the one that a dataset file makes.

    Parameters
    ----------
    name : `arithmetic` (the default without a dataset), `first_letter`, `vowels`,
        `eight_gaussians`, `reasoning_gym:NAME`, or a Gymnasium environment such as `CartPole-v1`.
    seed : decides what is generated and which questions are held out.
    dataset : a JSONL or parquet file in TRL's or verl's columns, instead of a name.
    reward : `file.py:function`, a callable, or several with weights, see `load_reward`; it replaces
        a language task's own.
        Without one, rows in verl's layout are judged by math-verify against `ground_truth`.
    params : of the task; every language task takes `held_out` and `horizon`.

    Raises `UsageError` for unknown names and parameters, with the nearest ones, and for
    everything that is wrong with the file or the reward function.
    """
    if dataset:
        if name:
            raise UsageError(f"task {name!r} and dataset {str(dataset)!r}: give one of the two")
        return _from(dataset_task, f"dataset {dataset}", dataset, reward, seed=seed, **params)
    timeout = {"timeout": params.pop("timeout")} if reward and "timeout" in params else {}
    task = _named(name or "arithmetic", seed, params)
    if not reward:
        return task
    if not isinstance(task, Problems):
        raise UsageError(f"{task.name} has its own reward: leave reward out")
    judge = load_reward(reward, **timeout)
    judge.check(task.train[0])
    details = {**task.details, "reward": judge.settings()}
    return dataclasses.replace(task, scorer=judge, details=details)


def task_names() -> list[str]:
    """The names that `load_task` knows, besides other Gymnasium environments."""
    from anypo.backends.reasoning_gym import dataset_names

    return [*BUILT_IN, "CartPole-v1", *(GYM + name for name in dataset_names())]


def about(name: str) -> str:
    """What a built-in task asks, as its docstring says it; empty for others."""
    made = inspect.getdoc(_built_in(name)) if name in BUILT_IN else ""
    return " ".join((made or "").partition("\n\nParameters\n")[0].split())


def _named(name: str, seed: int, params: dict[str, Any]) -> Any:
    if name.startswith(GYM):
        from anypo.backends.reasoning_gym import reasoning_gym_task

        return reasoning_gym_task(name.removeprefix(GYM), seed=seed, **params)
    if name in BUILT_IN:
        return _from(_built_in(name), name, seed=seed, **params)
    if re.search(r"-v\d+$", name):
        from anypo.backends.gymnasium import GymTask

        return GymTask(name, **params)
    known = task_names()
    near = f"; did you mean {GYM}{name}?" if GYM + name in known else nearest(name, known)
    there = f"; there are {', '.join(BUILT_IN)}, {GYM}NAME, and Gymnasium's, such as CartPole-v1"
    raise UsageError(f"there is no task {name!r}{near or there}")


def _built_in(name: str) -> Callable[..., Any]:
    if name == "arithmetic":
        from anypo.backends.reasoning_gym import arithmetic

        return arithmetic
    if name == "eight_gaussians":
        from anypo.tasks.generators import EightGaussians

        return EightGaussians
    from anypo.tasks import synthetic

    return getattr(synthetic, name)


def _from(make: Callable[..., Any], name: str, /, *given: Any, seed: int, **params: Any) -> Any:
    takes = list(inspect.signature(make).parameters)[len(given) :]
    for word in params:
        if word not in takes or word == "seed":
            names = sorted({*takes} - {"seed"})
            near = nearest(word, names) or f"; it takes {', '.join(names)}"
            raise UsageError(f"{name} has no parameter {word!r}{near}")
    return make(*given, **({"seed": seed} if "seed" in takes else {}), **params)


def dataset_task(
    file: str | Path,
    reward: Function = "",
    *,
    seed: int = 0,
    held_out: int = 60,
    horizon: int = 256,
    timeout: float = 60.0,
    max_length: int = 0,
    too_long: Literal["drop", "cut"] = "drop",
) -> Problems | Given:
    """The task that a file of rows makes: questions, pairs, or demonstrations.

    Rows with `chosen` and `rejected` are pairs; rows with a `completion`, with `messages` or with
    `text`, where no reward function is given and no ground truth, are demonstrations.

    Parameters
    ----------
    file : `.jsonl` or `.parquet`, in TRL's columns or verl's.
    reward : what judges answers, see `load_reward`; called with the rows' columns.
    seed : which questions are held out.
    held_out : questions kept out of training, at most a third.
    horizon : most tokens of a completion; 256 is TRL's.
    timeout : seconds for one call of the reward function.
    max_length : of rows that hold their answers, most tokens (0 = as many as the policy reads).
    too_long : what becomes of longer ones: `drop`, or `cut` to their first tokens.
    """
    path = Path(file)
    rows, kind = _read(path, bool(reward))
    train, out = split(rows, held_out, seed)
    details = {"dataset": str(path), "seed": seed}
    limits = {"max_length": max_length, "too_long": too_long}
    if kind == "preference":
        if reward:
            raise UsageError(f"{path} holds pairs, which need no reward function: leave it out")
        return Preferences(path.stem, train, out, details, **limits)
    if kind == "demonstration":
        return Demonstrations(path.stem, train, out, details, **limits)
    if max_length or too_long != "drop":
        wrong = "max_length and too_long are for rows that hold their answers"
        raise UsageError(f"{wrong}; those of {path} are sampled: give horizon, their most tokens")
    scorer, judge = _scorer(reward, rows, path, timeout)
    return Problems(path.stem, train, out, scorer, horizon, details | {"reward": judge})


def _read(path: Path, judged: bool) -> tuple[list[Row], str]:
    if path.suffix in SUFFIXES:
        return check(read_jsonl(path), str(path), "line", judged)
    if path.suffix == ".parquet":
        from anypo.backends.parquet import read_rows

        return check(read_rows(path), str(path), judged=judged)
    raise UsageError(f"{path} is neither .jsonl nor .parquet: write the dataset as one of them")


def _scorer(reward: Function, rows: list[Row], path: Path, timeout: float) -> tuple[Scorer, Any]:
    if reward:
        judge = load_reward(reward, timeout)
        judge.check(rows[0])
        return judge, judge.settings()
    from anypo.backends.math_verify import MathReward

    for n, row in enumerate(rows, 1):
        truth = ground_truth(row)
        if truth is None:
            cure = "name a reward function, file.py:function, or give each row verl's reward_model"
            raise UsageError(f"{path}, row {n}: nothing says what is right: {cure}")
        if not isinstance(truth, (str, int, float)):
            message = f"{path}, row {n}: the ground truth {str(truth)[:40]!r} is no text or number"
            raise UsageError(f"{message}: name a reward function, file.py:function")
    return MathReward(), "math-verify"
