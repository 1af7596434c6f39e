"""Reward functions in TRL's or verl's signature: timed, and checked before they are believed."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from anypo.core.errors import UsageError, nearest
from anypo.core.score import Score
from anypo.tasks.reward_call import NOT_PASSED, OURS, VERL, describe, score
from anypo.tasks.task import Prompt, Row
from anypo.tasks.worker import Worker, WorkerDied, WorkerError, WorkerLate

CALLS = "anypo.tasks.reward_call"
HERE = Path(__file__).parent


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
    options : further arguments for every call, by name.
    label : a short name (default the function's).

    `version` is a hash of the file, or of the callable's own source, and of the options: with it a
    run knows that its reward has changed. It is empty where no source can be read.

    Raises `UsageError`, naming the function and the cure, for a function that cannot be loaded or
    asks for what is not there; that raises or hangs; that returns an infinity, a string or the
    wrong number of values.
    """

    required = False
    """Whether a completion that this one cannot score is not scorable at all."""

    def __init__(
        self,
        source: str | Callable[..., Any],
        seconds: float = 60.0,
        options: Mapping[str, Any] | None = None,
        label: str = "",
    ) -> None:
        if not seconds > 0:
            raise UsageError(f"a time-out of {seconds} s is no time: give timeout in seconds, > 0")
        self.seconds, self.options = seconds, dict(options or {})
        named = isinstance(source, str)
        self._run = _InChild(source, label) if named else _InThread(source, label)
        self.name, self.label = self._run.name, label or self._run.label

    @property
    def version(self) -> str:
        """A hash of what decides the scores; empty where the source is not to be had."""
        return fingerprint(self._run.source(), self.options)

    def check(self, columns: Iterable[str]) -> None:
        """Raise now if the function cannot be loaded or wants a column that is not there."""
        takes = self._timed(self._run.describe, "loading")
        columns = sorted({*columns} - {*NOT_PASSED})
        offered = {*self.options} | ({*VERL} if takes["verl"] else {*OURS, *columns})
        for name in self.options if not takes["all"] else ():
            if name not in takes["named"]:
                raise UsageError(f"{self.name} has no argument {name!r}{_others(name, takes)}")
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
        what = f"{len(completions)} completions"
        found = self._timed(self._run.score, what, offer, self.options)
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


def fingerprint(source: str, options: Mapping[str, Any]) -> str:
    """SHA-256 of a source text and of the options it is called with; empty without a source."""
    told = json.dumps(dict(options), sort_keys=True, default=str) if options else ""
    return hashlib.sha256((source + told).encode()).hexdigest() if source else ""


def _others(name: str, takes: Mapping[str, Any]) -> str:
    known = [k for k in takes["named"] if k not in OURS]
    return nearest(name, known) or f"; it takes {', '.join(known) or 'none'}"


class _InChild:
    """Runs `file.py:function` in a process of its own."""

    def __init__(self, source: str, label: str) -> None:
        self.file, colon, self.function = source.rpartition(":")
        if not (colon and self.file and self.function):
            raise UsageError(f"{source!r} names no reward function: write file.py:function")
        self.name = f"the reward {label}" if label else f"the reward function {self.function}"
        self.name += "" if Path(self.file).parent == HERE else f" in {self.file}"
        self.label, self.worker = self.function, Worker(CALLS)

    def source(self) -> str:
        path = Path(self.file)
        return path.read_text("utf-8", "replace") if path.is_file() else ""

    def describe(self, seconds: float) -> dict[str, Any]:
        named = (self.file, self.function, self.name)
        return self.worker.call("describe_file", *named, seconds=max(seconds, 60))

    def score(self, offer: dict[str, Any], options: dict[str, Any], seconds: float) -> list[Any]:
        self.describe(seconds)  # a child that was started anew loads the file before time runs
        named = (self.file, self.function, self.name)
        return self.worker.call("score_file", *named, offer, options, seconds=seconds)


class _InThread:
    """Runs a Python callable in a daemon thread."""

    def __init__(self, function: Callable[..., Any], label: str) -> None:
        if not callable(function):
            raise UsageError(f"{function!r} is no reward function: give a callable, or a name")
        self.function = function
        own = getattr(function, "__qualname__", type(function).__qualname__)
        self.label = getattr(function, "__name__", type(function).__name__)
        self.name = f"the reward {label}" if label else f"the reward function {own}"

    def source(self) -> str:
        try:
            return inspect.getsource(inspect.unwrap(self.function))
        except (OSError, TypeError):  # made by exec, or an object of a class
            return _source_of_class(self.function)

    def describe(self, seconds: float) -> dict[str, Any]:
        return describe(self.function, self.name)

    def score(self, offer: dict[str, Any], options: dict[str, Any], seconds: float) -> list[Any]:
        outcome: list[Any] = []
        arguments = (outcome, self.function, self.name, offer, options)
        thread = Thread(target=_capture, args=arguments, daemon=True)
        thread.start()
        thread.join(seconds)
        if not outcome:
            raise WorkerLate
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]


def _source_of_class(instance: Any) -> str:
    try:
        return inspect.getsource(type(instance))
    except (OSError, TypeError):
        return ""


def _capture(outcome: list[Any], *arguments: Any) -> None:
    try:
        outcome.append(score(*arguments))
    except BaseException as error:
        outcome.append(error)


def _with_facts(result: float | dict[str, Any]) -> float:
    if not isinstance(result, dict):
        return result
    return Score(result["score"], {k: v for k, v in result.items() if k != "score"})
