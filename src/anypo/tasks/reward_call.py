"""Calling a reward function: what it takes, what it returns; run in a child process for files."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError, nearest

OURS = ("prompts", "completions", "completion_ids")
NOT_PASSED = ("prompt", "completion", "completion_ids")  # TRL leaves out the same columns
VERL = ("data_source", "solution_str", "ground_truth", "extra_info")


def describe_file(file: str, function: str, name: str) -> dict[str, Any]:
    """`describe` for a function of a file."""
    return describe(_load(file, function), name)


def score_file(
    file: str, function: str, name: str, offer: Mapping[str, Any], options: Mapping[str, Any]
) -> list[Any]:
    """`score` for a function of a file."""
    return score(_load(file, function), name, offer, options)


@lru_cache
def _load(file: str, function: str) -> Callable[..., Any]:
    path = Path(file)
    if not path.is_file():
        near = nearest(path.name, (p.name for p in path.parent.glob("*.py")))
        raise UsageError(f"there is no file {file} with a reward function{near}")
    sys.path.insert(0, str(path.parent.resolve()))  # as when Python runs the file
    spec = importlib.util.spec_from_file_location(f"reward_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is no Python file: name one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        message = f"{file} cannot be loaded: {type(error).__name__}: {error}{_place(error, path)}"
        raise UsageError(message) from error
    found = getattr(module, function, None)
    if not callable(found):
        names = [name for name, value in vars(module).items() if inspect.isroutine(value)]
        there = f"; it has {', '.join(sorted(names))}" if names else ""
        near = nearest(function, names) or there
        raise UsageError(f"{file} has no function {function!r}{near}")
    return found


def describe(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Which keyword arguments a function takes: `named`, `required`, `all` (**kwargs), `verl`."""
    kinds = inspect.Parameter
    parameters = inspect.signature(function).parameters.values()
    variable = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    if any(p.kind is kinds.POSITIONAL_ONLY and p.name in required for p in parameters):
        raise UsageError(f"{name} takes arguments by position only: let it take them by name")
    named = [p.name for p in parameters if p.kind not in (*variable, kinds.POSITIONAL_ONLY)]
    return {
        "named": named,
        "required": required,
        "all": any(p.kind is kinds.VAR_KEYWORD for p in parameters),
        "verl": "solution_str" in named,
    }


def score(
    function: Callable[..., Any],
    name: str,
    offer: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> list[float | dict[str, Any]]:
    """Call a function with what it takes of an offer, and check what it returns."""
    takes = describe(function, name)
    calls = _verl_calls(offer) if takes["verl"] else [_trl_call(offer)]
    calls = [{**call, **(options or {})} for call in calls]
    missing = [k for k in takes["required"] for call in calls[:1] if k not in call]
    if missing:
        raise UsageError(f"{name} asks for {missing[0]!r}, which this run does not give")
    if not takes["all"]:
        calls = [{k: v for k, v in call.items() if k in takes["named"]} for call in calls]
    try:
        results = [function(**call) for call in calls]
        if results and inspect.isawaitable(results[0]):
            results = asyncio.run(_gather(results))
    except BaseException as error:
        raise UsageError(_raised(name, function, error)) from error
    if not takes["verl"]:
        results = _listed(results[0], len(offer["completions"]), name)
    return [_scored(result, name) for result in results]


async def _gather(awaitables: Iterable[Any]) -> list[Any]:
    return list(await asyncio.gather(*awaitables))


def _trl_call(offer: Mapping[str, Any]) -> dict[str, Any]:
    columns = {k: v for k, v in offer["columns"].items() if k not in NOT_PASSED}
    ours = {name: offer[name] for name in OURS if name in offer}
    pairs = zip(offer["prompts"], offer["completions"])
    ours["completions"] = [
        text if isinstance(prompt, str) else [{"role": "assistant", "content": text}]
        for prompt, text in pairs
    ]
    return columns | ours


def _verl_calls(offer: Mapping[str, Any]) -> list[dict[str, Any]]:
    columns = offer["columns"]
    return [
        {
            "data_source": columns["data_source"][i] if "data_source" in columns else None,
            "solution_str": text,
            "ground_truth": ground_truth({name: column[i] for name, column in columns.items()}),
            "extra_info": columns["extra_info"][i] if "extra_info" in columns else None,
        }
        for i, text in enumerate(offer["completions"])
    ]


def ground_truth(row: Mapping[str, Any]) -> Any:
    """The `ground_truth` of a row in verl's layout (inside `reward_model`), or its plain column."""
    holder = row.get("reward_model")
    return (holder if isinstance(holder, Mapping) else row).get("ground_truth")


def _scored(result: Any, name: str) -> float | dict[str, Any]:
    """A number, or a dict with `score` and facts, which a child process can send."""
    if not isinstance(result, Mapping):
        return _number(result, name)
    if "score" not in result:
        raise UsageError(f"{name} returned a dict without 'score': put the reward under that key")
    return {**result, "score": _number(result["score"], name)}


def _listed(values: Any, count: int, name: str) -> list[Any]:
    cure = "return a list with one number (or None) for each completion"
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        kind = "None" if values is None else f"a {type(values).__name__}"
        raise UsageError(f"{name} returned {kind}, not a list: {cure}")
    values = list(values)
    if len(values) != count:
        raise UsageError(f"{name} returned {len(values)} values for {count} completions: {cure}")
    return values


def _number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    cure = "return a finite number, or None for a completion that it cannot score"
    try:
        number = math.inf if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError):
        number = math.inf
    except OverflowError:
        number = value = math.inf
    if math.isinf(number):
        kind = "" if isinstance(value, float) else f" (of type {type(value).__name__})"
        raise UsageError(f"{name} returned {str(value)[:40]!r}{kind} as a reward: {cure}")
    return number


def _raised(name: str, function: Callable[..., Any], error: BaseException) -> str:
    code = inspect.unwrap(function).__code__ if inspect.isfunction(function) else None
    place = _place(error, Path(code.co_filename)) if code else ""
    cure = "mend it, or let it return None for a completion that it cannot score"
    if "main thread" in str(error):
        cure = "name it as file.py:function, which then has a process and main thread of its own"
    return f"{name} raised {type(error).__name__}: {error}{place}: {cure}"


def _place(error: BaseException, path: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f" (line {line})" if line else ""
