"""From what a user writes to rewards: files, built-in names, judges, models, and sums of them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError, nearest
from anypo.tasks import rewards_builtin
from anypo.tasks.reward import Reward
from anypo.tasks.rewards import Part, Rewards, Source

Given = Any
"""A name, a callable, an object that scores, a `Part`; a list of such, or name → weight."""

MADE = {
    "accuracy": "anypo.backends.math_verify:MathReward",
    "cosine": "anypo.backends.reward_length:CosineReward",
    "judge": "anypo.backends.judge:Judge",
    "model": "anypo.backends.reward_model:RewardModel",
    "server": "anypo.backends.reward_server:RewardServer",
    "process": "anypo.backends.process_model:ProcessModel",
}
"""Names of rewards that are made of more than a function, and what makes them."""

ARGUMENT = {"format": "pattern", "judge": "rubric", "model": "source"}
ARGUMENT |= {"server": "url", "process": "source"}
"""Names that take an argument after a colon → what it is."""

FIELDS = frozenset(f.name for f in fields(Part)) - {"options"}
WEIGHT = re.compile(r"^(.*)=\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*$", re.DOTALL)


def load_reward(given: Given, timeout: float = 60.0) -> Rewards:
    """The rewards that a user named.

    Parameters
    ----------
    given : one reward, or several: text as on the command line (`exact.py:exact=1,think=0.2`, or
        JSON), a callable, an object that scores, a `Part`, a list of these, or a mapping from them
        to weights.
    timeout : seconds for one call of a function.

    Raises `UsageError` for everything that is wrong with what was given.
    """
    parts = parse(given)
    return Rewards(parts, [_source(part, timeout) for part in parts])


def written(given: Given) -> str:
    """The rewards as text from which they can be loaded again; empty where that is not possible."""
    if isinstance(given, str):
        return given
    try:
        return json.dumps(given) if given and isinstance(given, (list, tuple, dict)) else ""
    except TypeError:
        return ""


# ── what was written ─────────────────────────────────────────────────────────────────────────────


def parse(given: Given) -> list[Part]:
    """The parts of what a user named, each with its weight."""
    if isinstance(given, str):
        return _text(given)
    if isinstance(given, Mapping) and "reward" in given:
        return [_mapping(given)]
    if isinstance(given, Mapping):
        return [_weighted(reward, weight) for reward, weight in given.items()]
    if isinstance(given, (list, tuple)):
        return [_one(member) for member in given]
    return [_one(given)]


def _text(text: str) -> list[Part]:
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return parse(json.loads(text))
        except json.JSONDecodeError as error:
            raise UsageError(f"the rewards {text[:40]!r} are no JSON ({error})") from None
    words = [word.strip() for word in re.split(r"[,\n]", text)]
    return [_word(word) for word in words if word]


def _word(word: str) -> Part:
    """`SOURCE` or `SOURCE=WEIGHT`."""
    found = WEIGHT.match(word)
    return Part(found[1].strip(), float(found[2])) if found else Part(word)


def _one(member: Any) -> Part:
    if isinstance(member, Part):
        return member
    if isinstance(member, str):
        return _word(member)
    if isinstance(member, Mapping):
        return _mapping(member)
    return Part(member)


def _weighted(reward: Any, weight: Any) -> Part:
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise UsageError(
            f"{reward!r} has the weight {weight!r}: give a number, or write each reward as "
            "{reward: …, weight: …, …}"
        )
    return replace(reward if isinstance(reward, Part) else Part(reward), weight=float(weight))


def _mapping(said: Mapping[str, Any]) -> Part:
    """A part out of its fields; other keys are arguments of what scores."""
    if "reward" not in said:
        near = nearest("reward", said)
        raise UsageError(f"a reward without 'reward' (keys: {', '.join(said)}){near}: name it")
    own = {k: v for k, v in said.items() if k in FIELDS}
    return Part(**own, options={k: v for k, v in said.items() if k not in FIELDS})


# ── what scores ──────────────────────────────────────────────────────────────────────────────────


def _source(part: Part, timeout: float) -> Source:
    given, seconds = part.reward, part.timeout or timeout
    if not isinstance(given, (str, Path)):
        if all(hasattr(given, name) for name in ("label", "version", "required", "check")):
            return _unchanged(given, part)
        return Reward(given, seconds, part.options, part.name)
    text = str(given)
    head, colon, rest = text.partition(":")
    if Path(text).expanduser().is_dir():
        head, rest = "model", text
    elif (head not in ARGUMENT and colon) or head not in {*MADE, *rewards_builtin.NAMES}:
        return _file(text, seconds, part)
    options = dict(part.options)
    if head in ARGUMENT:
        options |= {ARGUMENT[head]: rest} if rest else {}
    if head in rewards_builtin.NAMES:
        return Reward(f"{rewards_builtin.__file__}:{head}", seconds, options, head)
    return _made(head, options, part.timeout)


def _file(text: str, seconds: float, part: Part) -> Source:
    known = [*MADE, *rewards_builtin.NAMES]
    file = text.rpartition(":")[0]
    if file.endswith(".py") or "/" in file:
        return Reward(text, seconds, part.options)
    raise UsageError(
        f"there is no reward {text!r}{nearest(text.partition(':')[0], known)}: name a function as "
        f"file.py:function, a folder with a reward model, or one of {', '.join(known)}"
    )


def _made(head: str, options: dict[str, Any], timeout: float) -> Source:
    make = _resolved(MADE[head])
    takes = inspect.signature(make).parameters
    any_name = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    if timeout and ("timeout" in takes or any_name):
        options.setdefault("timeout", timeout)
    for name in () if any_name else options:
        if name not in takes:
            near = nearest(name, takes) or f"; it takes {', '.join(takes)}"
            raise UsageError(f"the reward {head} has no option {name!r}{near}")
    missing = [n for n, p in takes.items() if _needed(p) and n not in options]
    if missing:
        how = f"write {head}:{missing[0].upper()}" if ARGUMENT.get(head) == missing[0] else ""
        cure = how or f"give it {missing[0]}, as in {{reward: {head}, {missing[0]}: …}}"
        raise UsageError(f"the reward {head} needs {missing[0]}: {cure}")
    return make(**options)


def _needed(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD


def _resolved(place: str) -> Callable[..., Source]:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _unchanged(given: Any, part: Part) -> Source:
    if part.options or part.timeout:
        raise UsageError(f"{given.name} is made already: give its options where it is made")
    return given


def names() -> Sequence[str]:
    """The rewards that have a name."""
    return (*rewards_builtin.NAMES, *MADE)
