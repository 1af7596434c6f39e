"""What is known of other libraries' keys: rows of `trl.tsv`, `verl.tsv` and `sb3.tsv`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

VERSIONS = {"trl": "TRL 1.16", "verl": "verl 0.9.1", "sb3": "Stable-Baselines3 2.9"}
"""Library → the version that its table is of."""

VERDICTS = {
    "same": "the same here",
    "differs": "here too, and different",
    "none": "no counterpart",
    "idle": "nothing to do",
    "unknown": "unknown to this table",
    "unread": "cannot be known without running it",
}
"""Verdict on a key → what it means."""


@dataclass(frozen=True)
class Row:
    """One key and kind of value: what it is here.

    `default` is what holds there without the key, `spoken` whether that is said; `value` tells
    which values the row is about; `ours` are options, fields of the recipe, or `*python*`.
    """

    key: str
    trainers: tuple[str, ...]
    default: str
    spoken: bool
    value: str
    verdict: str
    ours: tuple[str, ...]
    remark: str

    def fits(self, value: Any) -> bool:
        """Whether the row is about a value."""
        negated, words = self.value.startswith("!"), self.value.removeprefix("!").split("|")
        return words == ["*"] or any(alike(value, w) for w in words) != negated


def alike(value: Any, word: str) -> bool:
    """Whether a value is what a word says: `0` is 0.0, `true` is True, `none` is None."""
    text = "none" if value is None else str(value).lower()
    if text == word.lower() or (text == "null" and word == "none"):
        return True
    try:
        return not isinstance(value, bool) and float(text) == float(word)
    except ValueError:
        return False


@cache
def table(library: str) -> tuple[Row, ...]:
    """All rows of a library, in the order of the file."""
    lines = Path(__file__).with_name(f"{library}.tsv").read_text("utf-8").splitlines()
    body = [line.split("\t") for line in lines if line and not line.startswith("#")][1:]
    return tuple(_row(*(cell.strip() for cell in [*cells, ""][:7])) for cells in body)


def _row(
    key: str, trainers: str, default: str, value: str, verdict: str, ours: str, remark: str
) -> Row:
    named = tuple(name for name in ours.split(",") if name not in ("", "-"))
    spoken = default.startswith("!")
    plain = default.removeprefix("!")
    return Row(key, tuple(trainers.split()), plain, spoken, value, verdict, named, remark)


def rows(library: str, trainer: str) -> tuple[Row, ...]:
    """The rows that a trainer of a library reads."""
    return tuple(r for r in table(library) if "*" in r.trainers or trainer in r.trainers)


def find(known: Iterable[Row], key: str, value: Any) -> Row | None:
    """The row of a key and its value; a row `group.*` is about every key of the group."""
    known = tuple(known)
    exact = [r for r in known if r.key == key]
    wide = [r for r in known if r.key.endswith(".*") and key.startswith(r.key[:-1])]
    wide.sort(key=lambda r: -len(r.key))  # the nearest group first
    return next((r for r in (*exact, *wide) if r.fits(value)), None)


def defaults(known: Iterable[Row]) -> dict[str, Any]:
    """Key → what holds without it, as a value."""
    return {r.key: plain(r.default) for r in known if r.default}


def plain(text: str) -> Any:
    """A text as the value that YAML, or a command line, would take it for."""
    if text.lower() in ("none", "null", "~"):
        return None
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if isinstance(value, str):  # YAML 1.1 wants a dot in 1e-6
        try:
            return float(value)
        except ValueError:
            return value
    return value
