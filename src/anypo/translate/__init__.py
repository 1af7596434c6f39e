"""Configurations of TRL, verl and Stable-Baselines3 as methods and options of this library.

Files are read and never run. `trl.tsv`, `verl.tsv` and `sb3.tsv` say what is known of each key.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anypo.core.errors import UsageError, nearest
from anypo.translate import python, sb3, text, trl, verl
from anypo.translate.express import express
from anypo.translate.given import Given, Source, Unread
from anypo.translate.judges import judge
from anypo.translate.plan import Plan
from anypo.translate.table import VERSIONS, defaults, rows
from anypo.translate.translation import Line, Translation, lines

__all__ = [
    "VERSIONS",
    "Given",
    "Line",
    "Source",
    "Translation",
    "Unread",
    "from_sb3",
    "from_trl",
    "from_verl",
    "read",
    "translate",
]

LARGEST = 2_000_000
"""Bytes of a file; a configuration has some thousands."""

TRAINERS = ("grpo", "rloo", "dpo", "sft")


def translate(file: str | Path, *, trainer: str = "", line: int = 0, **run: int) -> Translation:
    """The translation of a file.

    Parameters
    ----------
    file : a Python file with a call of TRL or Stable-Baselines3, a YAML file of TRL or verl, or a
        shell script with a command line of verl or `trl`.
    trainer : TRL's, where a YAML file does not tell.
    line : which call of a Python file, where there are several.
    devices, rows : processes that TRL would run on (default 1), rows of the data set (default: the
        epochs are not turned into iterations).

    Raises `UsageError` for what cannot be read, and for a configuration that no recipe can be.
    """
    path = Path(file)
    return translation(read(path, trainer, line), str(path), **run)


def read(path: Path, trainer: str = "", line: int = 0) -> Source:
    """What a file says, by its suffix."""
    if trainer and trainer not in TRAINERS:
        raise UsageError(f"there is no trainer {trainer!r}{nearest(trainer, TRAINERS)}")
    if not path.is_file():
        raise UsageError(f"{path} does not exist")
    if path.stat().st_size > LARGEST:
        raise UsageError(f"{path} is too large for a configuration")
    try:
        content = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text: {error.reason}") from None
    if path.suffix == ".py":
        return python.read(content, str(path), line)
    if path.suffix in (".yaml", ".yml"):
        return text.read_yaml(content, str(path), trainer)
    if path.suffix in (".sh", ".bash", ".txt", ""):
        return text.read_shell(content, str(path))
    raise UsageError(f"{path} is neither .py nor .yaml nor .sh")


def from_trl(config: Any, trainer: str = "grpo", **run: int) -> Translation:
    """The translation of a `GRPOConfig` (or another of TRL's), or of a mapping of its keys.

    Parameters: `trainer` (`grpo`, `rloo`, `dpo`, `sft`), `devices` (1), `rows` of the data set.
    """
    if trainer not in TRAINERS:
        raise UsageError(f"there is no trainer {trainer!r}{nearest(trainer, TRAINERS)}")
    return translation(Source("trl", trainer, _given(config)), **run)


def from_verl(config: Mapping[str, Any], **run: int) -> Translation:
    """The translation of verl's configuration: nested, or with dotted keys."""
    flat = [Given(k, v) for k, v in _dotted(config, "")]
    return translation(text.verl(flat), **run)


def from_sb3(arguments: Mapping[str, Any], algorithm: str = "ppo") -> Translation:
    """The translation of arguments of SB3's `PPO` or `A2C`, with `n_envs` and `total_timesteps`."""
    if algorithm not in ("ppo", "a2c"):
        raise UsageError(f"there is no algorithm {algorithm!r}: ppo or a2c")
    return translation(Source("sb3", algorithm, _given(arguments)))


def _given(config: Any) -> tuple[Given, ...]:
    """Keys of a mapping; of an object with defaults, those that differ from them."""
    if isinstance(config, Mapping):
        return tuple(Given(str(k), v) for k, v in config.items())
    plain = {f.name: f for f in dataclasses.fields(config)}
    changed = {k: v for k, v in vars(config).items() if k in plain and not _default(plain[k], v)}
    return tuple(Given(k, v) for k, v in changed.items())


def _default(field: Any, value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return value == field.default_factory()
    return field.default is not dataclasses.MISSING and value == field.default


def _dotted(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, inner in value.items():
        name = f"{prefix}{key}"
        nested = isinstance(inner, Mapping)
        found += _dotted(inner, f"{name}.") if nested else [(name, inner)]
    return found


def translation(source: Source, file: str = "", **run: int) -> Translation:
    """The translation of what was read; `file` is where functions of its own are."""
    known = rows(source.library, source.trainer)
    given = {k: v for k, v in source.values.items() if v is not None}
    values = {**defaults(known), **source.values}
    try:
        plan = _plan(source, values, given, run)
        plan.recipe.check(file or "this configuration")
    except (TypeError, ValueError, KeyError) as error:
        raise UsageError(f"{file or 'it'} holds a value that is not of its kind: {error}") from None
    judge(plan, given, file)
    for key in (g.key for g in source.given if isinstance(g.value, Unread)):
        for option in (o for r in known if r.key == key for o in r.ours):
            plan.options.pop(option.removeprefix("--").replace("-", "_"), None)
    expression, nearest_ = express(plan.recipe, plan.methods, plan.hints)
    shown = lines(source, plan, plan.recipe, plan.options)
    return Translation(
        source.library, source.trainer, shown, plan.recipe, nearest_, expression, plan.options
    )


def _plan(
    source: Source, values: Mapping[str, Any], given: Mapping[str, Any], run: Mapping[str, int]
) -> Plan:
    if source.library == "verl":
        return verl.plan(values, given, **run)
    module = trl if source.library == "trl" else sb3
    return module.plan(source.trainer, values, given, **run)
