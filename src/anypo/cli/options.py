"""Options: the words of a command line, and a YAML file, into one typed dataclass through tyro."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro
import yaml

from anypo.core.errors import UsageError, nearest

T = TypeVar("T")
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]
TRUE, FALSE = frozenset("true yes on 1".split()), frozenset("false no off 0".split())
WORDS = {int: "a whole number", float: "a number", bool: "true or false"}


def said(text: str, metavar: str, default: str = "") -> Any:
    """An option's help, how its value is written, and its default in words for a person."""
    hint = f"(default: {default})" if default else ""
    return tyro.conf.arg(help=text, metavar=metavar, help_behavior_hint=hint)


Named = Annotated[
    str,
    said(
        "arithmetic, first_letter, vowels, reasoning_gym:NAME, CartPole-v1, eight_gaussians; "
        "--task.PARAMETER VALUE sets one of its parameters",
        "NAME",
        "arithmetic",
    ),
]
Dataset = Annotated[
    str, said("a JSONL or parquet file in TRL's or verl's columns, instead of a task", "FILE")
]
Judge = Annotated[
    str,
    said(
        "what judges completions: FILE.py:FUNCTION in TRL's signature, a folder with a reward "
        "model, judge:RUBRIC, accuracy, exact, format:REGEX, think, repetition; several with "
        "weights as A=1,B=0.2",
        "REWARD[,REWARD]",
        "the task's own",
    ),
]
Precision = Annotated[
    str, said("of forward passes: float32 or bfloat16", "NAME", "what suits the policy")
]
Config = Annotated[
    str, said("a YAML file of these options; the command line goes before it", "FILE")
]


def parse(
    cls: type[T], given: Mapping[str, str], command: str, free: tuple[str, ...] = (), also: str = ""
) -> T:
    """Gathered options as a dataclass; `free` are prefixes that the command reads itself.

    `also` ends the sentence about an unknown option.

    Raises `UsageError` for an unknown or missing option and for a value of the wrong type. `--help`
    prints the page and raises `SystemExit(0)`.
    """
    hints, program = leaves(cls), f"anypo {command}"
    if "help" in given:
        tyro.cli(cls, args=["--help"], prog=program)
    for name in given:
        if name in hints:
            convert(given[name], hints[name], dashed(name))
        elif not name.startswith(free or ("\n",)):
            near = nearest(dashed(name), [dashed(n) for n in hints if not is_positional(hints[n])])
            raise UsageError(f"{program} has no option {dashed(name)}{near}{also}")
    for f in fields(cls):  # pyright: ignore[reportArgumentType]
        if f.default is f.default_factory is MISSING and f.name not in given:
            raise UsageError(f"{program} needs {f.name.upper()} (see: {program} --help)")
    return tyro.cli(cls, args=_argv(hints, given), prog=program)


def gather(cls: type[Any], words: list[str]) -> dict[str, str]:
    """Option → its text, out of the words and of the YAML file that they may name."""
    hints = leaves(cls)
    flags = {name for name, hint in hints.items() if bare(hint) is bool} | {"help"}
    given, rest = split(words, flags)
    for name in [n for n, hint in hints.items() if is_positional(hint)]:
        if not rest or name in given:
            continue
        whole = get_origin(bare(hints[name])) is tuple
        given[name], rest = ("\n".join(rest), []) if whole else (rest[0], rest[1:])
    if rest:
        raise UsageError(f"nothing is expected where {rest[0]!r} stands: options begin with --")
    if "config" not in given or "config" not in hints:
        return given
    return {**configured(Path(given["config"])), **given}


def split(words: list[str], flags: set[str]) -> tuple[dict[str, str], list[str]]:
    """Options with their texts, names with underscores, and the words that belong to none."""
    given: dict[str, str] = {}
    rest: list[str] = []
    queue = ["--help" if word == "-h" else word for word in words]
    while queue:
        word = queue.pop(0)
        if not word.startswith("--"):
            rest.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if not equals and name in flags:
            value = "true"
        elif not equals and (not queue or queue[0].startswith("--")):
            raise UsageError(f"{dashed(name)} needs a value")
        elif not equals:
            value = queue.pop(0)
        if name in given:
            raise UsageError(f"{dashed(name)} is given twice: keep one")
        given[name] = value
    return given, rest


def configured(path: Path) -> dict[str, str]:
    """The options of a YAML file: keys are their names, nested keys are joined by dots."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist: --config names a YAML file of options")
    try:
        data = yaml.safe_load(path.read_text("utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} is no YAML file: {reason}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} must hold a mapping of options, such as steps: 20")
    return {name.replace("-", "_"): text for name, text in _flat(data, "", path)}


def _flat(data: Mapping[Any, Any], prefix: str, path: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            found += _flat(value, f"{name}.", path)
        elif value is None:
            raise UsageError(f"{path} gives no value to {name}: write one, or leave it out")
        else:
            found.append((name, value if isinstance(value, str) else json.dumps(value)))
    return found


def leaves(cls: type[Any]) -> dict[str, Any]:
    """Option → type, with the fields of nested dataclasses in their place."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(cls, include_extras=True).items():
        found |= leaves(bare(hint)) if is_dataclass(bare(hint)) else {name: hint}
    return found


def bare(hint: Any) -> Any:
    """A type without its annotations."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def is_positional(hint: Any) -> bool:
    """Whether an option is written without its name."""
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(mark is get_args(tyro.conf.Positional[int])[1] for mark in marks)


def _argv(hints: Mapping[str, Any], given: Mapping[str, str]) -> list[str]:
    named, placed = [], []
    for name, hint in hints.items():
        if name not in given:
            continue
        if is_positional(hint):
            placed += given[name].split("\n")
        elif bare(hint) is not bool:
            named.append(f"{dashed(name)}={given[name]}")
        elif given[name].lower() in TRUE:
            named.append(dashed(name))
    return [*named, "--", *placed] if placed else named


def dashed(name: str) -> str:
    """An option as it is written: `--save-every`."""
    return "--" + name.replace("_", "-")


def convert(text: str, hint: Any, option: str) -> Any:
    """A text as a value of a type; the first member of a union that fits."""
    hint = bare(hint)
    if hint is bool:
        if text.lower() not in TRUE | FALSE:
            raise UsageError(f"{option} wants true or false, not {text!r}")
        return text.lower() in TRUE
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            raise UsageError(f"{option} wants {WORDS[hint]}, not {text!r}") from None
    if get_origin(hint) is Literal:
        if text not in get_args(hint):
            known = ", ".join(map(str, get_args(hint)))
            raise UsageError(f"{option} wants one of {known}, not {text!r}")
        return text
    if get_origin(hint) is tuple:
        return tuple(convert(t, get_args(hint)[0], option) for t in members(text))
    if hint is not str and get_args(hint):
        return _first(text, get_args(hint), option)
    return text


def members(text: str) -> list[str]:
    """The members of `a, b`, `(a, b)` or `["a", "b"]`; of lines, where there are some."""
    if "\n" in text:
        return text.split("\n")
    inner = text.strip().removeprefix("(").removesuffix(")").removeprefix("[").removesuffix("]")
    return [part.strip().strip("'\"") for part in inner.split(",") if part.strip()]


def _first(text: str, hints: tuple[Any, ...], option: str) -> Any:
    errors = []
    for hint in hints:
        try:
            return convert(text, hint, option)
        except UsageError as error:
            errors.append(str(error))
    raise UsageError(", or ".join(errors))


def guess(text: str) -> Any:
    """A text as the number, truth value, list or word that it looks like."""
    if re.fullmatch(r"[-+]?\d+", text):
        return int(text)
    try:
        return json.loads(text) if text[:1] in '[{"' or text in ("true", "false") else float(text)
    except ValueError:
        return text


def documented(cls: type[Any]) -> dict[str, str]:
    """Field → help text, out of the `Parameters` section of a docstring (`name : what it is`)."""
    doc = (cls.__doc__ or "").partition("----------\n")[2]
    found = re.findall(r"^ *(\w+) : (.*(?:\n +(?!\w+ : )\S.*)*)", doc, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}
