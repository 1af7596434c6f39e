"""YAML files and shell scripts of TRL and verl, read and never run."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from anypo.core.errors import UsageError
from anypo.translate.given import Given, Source, Unread
from anypo.translate.table import plain

VERL = ("actor_rollout_ref", "algorithm", "critic", "trainer", "data", "reward_model", "reward")
"""Groups at the top of a verl configuration."""

SHORT = {
    "actor_rollout_ref.actor.": "actor.",
    "actor_rollout_ref.rollout.": "rollout.",
    "actor_rollout_ref.model.": "model.",
    "actor_rollout_ref.ref.": "ref.",
}
"""verl's long prefixes, and what the table calls them."""

MARKS = {
    "sft": ("packing", "completion_only_loss", "assistant_only_loss"),
    "dpo": ("precompute_ref_log_probs", "label_smoothing", "f_divergence_type"),
    "rloo": ("normalize_advantages", "reward_clip_range"),
    "grpo": ("num_generations", "reward_funcs", "max_completion_length", "num_iterations"),
}
"""Trainer → keys that give it away."""


def read_yaml(text: str, name: str, trainer: str = "") -> Source:
    """The configuration in a YAML file: verl's by its groups, else TRL's.

    Raises `UsageError` for what is no mapping, and where the trainer cannot be told.
    """
    try:
        node = yaml.compose(text, yaml.SafeLoader)
        value = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{name} is no YAML file: {reason}") from None
    if not isinstance(node, yaml.MappingNode) or not isinstance(value, dict):
        raise UsageError(f"{name} must hold a mapping of keys, such as learning_rate: 1e-6")
    lines = text.splitlines()
    if any(str(k) in VERL and isinstance(v, dict) for k, v in value.items()):
        return verl(list(_flat(node, value, "", lines)))
    given = []
    for key, _ in node.value:
        line = key.start_mark.line
        if key.value in value:
            found = _number(value[key.value])
            given.append(Given(key.value, found, line + 1, lines[line].strip()))
    return Source("trl", trainer or _trainer({g.key for g in given}, name), tuple(given))


def _number(value: Any) -> Any:
    return plain(value) if isinstance(value, str) else value


def _trainer(keys: set[str], name: str) -> str:
    for trainer, marks in MARKS.items():
        if keys & set(marks):
            return trainer
    raise UsageError(
        f"{name} may be any trainer's: say which with --trainer grpo, rloo, dpo or sft"
    )


def _flat(node: Any, value: Any, prefix: str, lines: list[str]) -> Iterator[Given]:
    for key, inner in node.value:
        name, line = f"{prefix}{key.value}", key.start_mark.line + 1
        if key.value in ("defaults", "hydra", "_target_") or key.value not in value:
            continue
        if isinstance(inner, yaml.MappingNode) and isinstance(value[key.value], dict):
            yield from _flat(inner, value[key.value], f"{name}.", lines)
        else:
            found = value[key.value]
            if isinstance(found, str) and "${" in found:
                found = Unread(found)
            yield Given(name, _number(found), line, lines[line - 1].strip())


def verl(given: list[Given]) -> Source:
    """verl's keys under the table's short names; `${…}` of a key that is there is its value."""
    known = {g.key: g.value for g in given}
    shown = [Given(short(g.key), _resolved(g.value, known), g.line, g.text) for g in given]
    return Source("verl", "ppo", tuple(shown))


def _resolved(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, Unread) and (whole := re.fullmatch(r"\$\{([\w.]+)\}", value.text)):
        return known.get(whole[1], value)
    return value


def short(key: str) -> str:
    """A key without verl's long prefixes."""
    for long, word in SHORT.items():
        if key.startswith(long):
            return word + key.removeprefix(long)
    return key


def read_shell(text: str, name: str) -> Source:
    """The overrides of a verl command line, or the options of a `trl` one, in a shell script."""
    words = list(Script(text).words())
    plain_words = [w for w, _, _ in words]
    for at, word in enumerate(plain_words):
        if word.rsplit("/", 1)[-1] == "trl" and at + 1 < len(plain_words):
            return _trl_words(words[at + 1 :])
    found = [g for w, line, shown in words if (g := _override(w, line, shown))]
    if not found:
        raise UsageError(f"{name} holds neither a verl command line nor a trl one")
    return verl(found)


def _override(word: str, line: int, text: str) -> Given | None:
    whole = re.fullmatch(r"(?:\+\+?|~)?([a-z_]+(?:\.[\w]+)+|model_engine)=(.*)", word, re.DOTALL)
    return Given(whole[1], _plain(whole[2]), line, text) if whole else None


def _plain(text: str) -> Any:
    return Unread(text) if "$" in text or "`" in text else plain(text)


def _trl_words(words: list[tuple[str, int, str]]) -> Source:
    trainer = words[0][0]
    if trainer not in MARKS:
        raise UsageError(f"trl {trainer} cannot be translated (there is {', '.join(MARKS)})")
    given: list[Given] = []
    for word, line, text in words[1:]:
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
            given.append(
                Given(key.replace("-", "_"), _plain(value) if equals else True, line, text)
            )
        elif given:
            last = given.pop()
            more = [*last.value, _plain(word)] if isinstance(last.value, list) else _plain(word)
            if last.value is not True and not isinstance(last.value, list):
                more = [last.value, _plain(word)]
            given.append(Given(last.key, more, last.line, last.text))
    return Source("trl", trainer, tuple(given))


SUMS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}


class Script:
    """A shell script's words, with plain variables, arrays and sums filled in."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.variables: dict[str, str] = {}
        self.arrays: dict[str, list[tuple[str, int, str]]] = {}

    def words(self) -> Iterator[tuple[str, int, str]]:
        """Each word of each command, its line, and that line."""
        for line, command, shown in self._commands():
            if array := re.match(r"\s*(?:declare -a\s+)?(\w+)\+?=\(", command):
                inner = command[array.end() :].rstrip().removesuffix(")")
                self.arrays.setdefault(array[1], []).extend(self._split(inner, line, shown))
                continue
            for word, at, text in self._split(command, line, shown):
                assigned = re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, re.DOTALL)
                if assigned and at == line and re.match(rf"\W*(export\s+)?{assigned[1]}=", text):
                    self.variables[assigned[1]] = assigned[2]
                elif inside := re.fullmatch(r"\$\{(\w+)\[[@*]\]\}", word):
                    yield from self.arrays.get(inside[1], [(word, at, text)])
                else:
                    yield word, at, text

    def _commands(self) -> Iterator[tuple[int, str, list[str]]]:
        """Commands with their first line: continuations and open brackets are joined."""
        gathered: list[str] = []
        lines = self.text.splitlines()
        for number, line in enumerate(lines, 1):
            bare = line.strip()
            if not gathered and (not bare or bare.startswith("#")):
                continue
            gathered.append("" if bare.startswith("#") else line.rstrip().removesuffix("\\"))
            whole = "\n".join(gathered)
            opened = re.match(r"\s*(?:declare -a\s+)?\w+\+?=\(", whole) and not bare.endswith(")")
            if (line.rstrip().endswith("\\") or opened) and number < len(lines):
                continue
            yield number - len(gathered) + 1, whole, gathered
            gathered = []

    def _split(self, command: str, first: int, shown: list[str]) -> list[tuple[str, int, str]]:
        found = []
        for offset, line in enumerate(command.split("\n")):
            plain_line = re.sub(r"\$\(\(((?:[^()]|\([^()]*\))+)\)\)", self._sum, line)
            try:
                words = shlex.split(plain_line, comments=True)
            except ValueError:  # a quotation over several lines holds no override
                words = plain_line.split()
            text = line.strip().removesuffix("\\").strip()
            found += [(self._filled(w), first + offset, text) for w in words]
        return found

    def _filled(self, word: str) -> str:
        def variable(m: re.Match[str]) -> str:
            return self.variables.get(m[1] or m[3], m[2] if m[2] is not None else m[0])

        for _ in range(8):
            new = re.sub(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)", variable, word)
            if new == word:
                return new
            word = new
        return word

    def _sum(self, m: re.Match[str]) -> str:
        """An arithmetic expansion of whole numbers and of names that are such; else as it is."""
        try:
            return str(self._number(ast.parse(self._filled(m[1]).strip(), mode="eval").body))
        except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
            return m[0]

    def _number(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            return int(self.variables[node.id])
        if isinstance(node, ast.BinOp):
            return SUMS[type(node.op)](self._number(node.left), self._number(node.right))
        raise ValueError
