"""Reward functions in TRL's or verl's signature: timed, and checked before they are believed."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Thread
from typing import Any

from anypo.core.errors import UsageError, nearest
from anypo.core.score import Score
from anypo.tasks.task import Prompt, Row
from anypo.tasks.worker import Worker, WorkerDied, WorkerError, WorkerLate

OURS = ("prompts", "completions", "completion_ids")
NOT_PASSED = ("prompt", "completion", "completion_ids")  # TRL leaves out the same columns
VERL = ("data_source", "solution_str", "ground_truth", "extra_info")


class Reward:
    """A `Scorer` out of a reward function `f(prompts, completions, **columns)`, sync or async.

    Called with keyword arguments: `prompts`, `completions` (for chat prompts lists of one
    assistant message, as in TRL), `completion_ids` if it takes them, and those dataset columns
    that it takes (all of them if it has `**kwargs`). It returns one number for each completion;
    None and NaN mean "not scorable" and come out as NaN. In place of a number it may be a dict with
    `score` and further facts (`flawed`, `cluster`, …), which recipes read by their names. A
    function with a parameter `solution_str` is called in verl's way, once for each completion, with
    `data_source`, `solution_str`, `ground_truth` and `extra_info`, and returns a number or such a
    dict.

    A function named `file.py:function` runs in a child process, which is killed when it hangs. A
    Python object runs in a daemon thread, which can only be abandoned: control returns as soon as
    the function lets other threads run.

    Parameters
    ----------
    source : `file.py:function`, or a callable.
    seconds : time-out of a call, for the completions of one iteration together.

    Raises `UsageError`, naming the function and the cure, for a function that cannot be loaded or
    asks for what is not there; that raises or hangs; that returns an infinity, a string or the
    wrong number of values.
    """

    def __init__(self, source: str | Callable[..., Any], seconds: float = 60.0) -> None:
        if not seconds > 0:
            raise UsageError(f"a time-out of {seconds} s is no time: give timeout in seconds, > 0")
        self.seconds = seconds
        self._run = _InChild(source) if isinstance(source, str) else _InThread(source)
        self.name = self._run.name

    def check(self, columns: Iterable[str]) -> None:
        """Raise now if the function cannot be loaded or wants a column that is not there."""
        takes = self._timed(self._run.describe, "loading")
        columns = sorted({*columns} - {*NOT_PASSED})
        offered = {*VERL} if takes["verl"] else {*OURS, *columns}
        if takes["verl"] and not {"reward_model", "ground_truth"} & {*columns}:
            offered.remove("ground_truth")
        for name in takes["required"]:
            if name not in offered:
                raise UsageError(
                    f"{self.name} asks for {name!r}, which is no column of the dataset (columns: "
                    f"{', '.join(columns) or 'none but prompt'}): add the column, or give the "
                    f"parameter a default{nearest(name, columns)}"
                )

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """One number for each completion, NaN where it cannot be scored."""
        if not completions:
            return []
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        offer = {"prompts": list(prompts), "completions": list(completions), "columns": columns}
        if completion_ids is not None:
            offer["completion_ids"] = [[int(token) for token in ids] for ids in completion_ids]
        found = self._timed(self._run.score, f"{len(completions)} completions", offer)
        return [_with_facts(result) for result in found]

    def _timed(self, function: Callable[..., Any], what: str, *arguments: Any) -> Any:
        try:
            return function(*arguments, seconds=self.seconds)
        except WorkerLate:
            raise UsageError(
                f"{self.name} took more than {self.seconds:g} s ({what}) and was stopped: mend "
                "what hangs, or allow it more seconds with timeout="
            ) from None
        except WorkerDied as end:
            raise UsageError(
                f"{self.name} ended its process ({end}): it must return, not exit or crash"
            ) from None
        except WorkerError as error:
            raise UsageError(f"{self.name} raised {error}") from None


class _InChild:
    """Runs `file.py:function` in a process of its own."""

    def __init__(self, source: str) -> None:
        self.file, colon, self.function = source.rpartition(":")
        if not (colon and self.file and self.function):
            raise UsageError(f"{source!r} names no reward function: write file.py:function")
        self.name = f"the reward function {self.function} in {self.file}"
        self.worker = Worker(__name__)

    def describe(self, seconds: float) -> dict[str, Any]:
        return self.worker.call("describe_file", self.file, self.function, seconds=max(seconds, 60))

    def score(self, offer: dict[str, Any], seconds: float) -> list[Any]:
        self.describe(seconds)  # a child that was started anew loads the file before time runs
        return self.worker.call("score_file", self.file, self.function, offer, seconds=seconds)


class _InThread:
    """Runs a Python callable in a daemon thread."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        label = getattr(function, "__qualname__", type(function).__qualname__)
        self.name = f"the reward function {label}"

    def describe(self, seconds: float) -> dict[str, Any]:
        return describe(self.function, self.name)

    def score(self, offer: dict[str, Any], seconds: float) -> list[Any]:
        outcome: list[Any] = []
        arguments = (outcome, self.function, self.name, offer)
        thread = Thread(target=_capture, args=arguments, daemon=True)
        thread.start()
        thread.join(seconds)
        if not outcome:
            raise WorkerLate
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]


def _capture(outcome: list[Any], *arguments: Any) -> None:
    try:
        outcome.append(score(*arguments))
    except BaseException as error:
        outcome.append(error)


# ── what a child process runs ────────────────────────────────────────────────────────────────────


def describe_file(file: str, function: str) -> dict[str, Any]:
    """`describe` for a function of a file."""
    return describe(_load(file, function), f"the reward function {function} in {file}")


def score_file(file: str, function: str, offer: Mapping[str, Any]) -> list[Any]:
    """`score` for a function of a file."""
    return score(_load(file, function), f"the reward function {function} in {file}", offer)


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
    function: Callable[..., Any], name: str, offer: Mapping[str, Any]
) -> list[float | dict[str, Any]]:
    """Call a function with what it takes of an offer, and check what it returns."""
    takes = describe(function, name)
    calls = _verl_calls(offer) if takes["verl"] else [_trl_call(offer)]
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


def _with_facts(result: float | dict[str, Any]) -> float:
    if not isinstance(result, dict):
        return result
    return Score(result["score"], {k: v for k, v in result.items() if k != "score"})


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
