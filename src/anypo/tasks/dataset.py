"""Rows from files, in TRL's columns or verl's, checked before anything is trained on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from anypo.core.errors import UsageError, nearest
from anypo.tasks.task import Row

TAKEN = ("prompts", "completions")  # the names under which rewards get what is not a column
SIDES = {"preference": ("chosen", "rejected"), "demonstration": ("completion",)}
"""Kind of a task whose answers are given → the columns that hold them, the best first."""

SUFFIXES = (".jsonl", ".ndjson", ".json")


def find(path: Path) -> Path:
    """The path of an existing file; raises `UsageError` with the nearest names otherwise."""
    if not path.is_file():
        near = nearest(path.name, (p.name for p in path.parent.glob("*") if p.is_file()))
        raise UsageError(f"there is no file {path}{near or ': check the path'}")
    return path


def read_jsonl(path: Path) -> list[Row]:
    """The objects of a JSONL file, one a line, in UTF-8 (a byte order mark is skipped).

    Raises `UsageError` with the line for what is no UTF-8, no JSON, no object, or blank.
    """
    lines = find(path).read_bytes().removeprefix(b"\xef\xbb\xbf").rstrip().split(b"\n")
    if lines == [b""]:
        raise UsageError(f"{path} is empty: it needs one JSON object a line, each with a prompt")
    return [_row(line, f"{path}, line {n}") for n, line in enumerate(lines, 1)]


def _row(line: bytes, place: str) -> Row:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        message = f"{place}: byte {error.start + 1} is not UTF-8: save the file in UTF-8"
        raise UsageError(message) from None
    except json.JSONDecodeError as error:
        what = f"not JSON ({error.msg}, column {error.colno})" if line.strip() else "blank"
        message = f"{place}: {what}: each line must be one whole JSON object"
        raise UsageError(message) from None
    if not isinstance(row, dict):
        message = f"{place}: {_kind(row)}, not an object: write one JSON object a line"
        raise UsageError(message)
    return row


def check(
    rows: Sequence[Mapping[str, Any]], source: str, unit: str = "row", judged: bool = False
) -> tuple[list[Row], Literal["language", "preference", "demonstration"]]:
    """The rows with every column in each (None where absent), and the kind of task they make.

    `chosen` and `rejected` make a preference task; `completion` makes one of demonstrations, where
    nothing judges answers. Prompts, and those, are text or a chat (`[{role, content}, …]`), the
    same kind in all rows; other columns are whatever rewards take, of one type each.

    Parameters
    ----------
    rows : mappings, as read.
    source, unit : how an error names the place: `source, unit number`.
    judged : whether a reward function is given, to which a `completion` is a column like others;
        a `reward_model`, verl's column, is one too.

    Raises `UsageError` with the place and the cure for no rows, an empty row, an absent or empty
    prompt, something that is neither text nor chat, half a pair, and mixed types.
    """
    if not rows:
        raise UsageError(f"{source} has no rows: it needs at least one, with a prompt")
    names = list(dict.fromkeys(name for row in rows for name in row))
    taken = [name for name in TAKEN if name in names]
    if taken:
        message = f"{source}: the column {taken[0]!r} has a name that rewards get from the run"
        raise UsageError(f"{message}: rename it")
    kind = _task_of(names, judged)
    parts = ("prompt", *SIDES.get(kind, ()))
    for n, row in enumerate(rows, 1):
        _check_row(row, parts, f"{source}, {unit} {n}")
    for name in names:
        _check_column([row.get(name) for row in rows], name, source, unit)
    return [{name: row.get(name) for name in names} | _trim(row, parts) for row in rows], kind


def _task_of(
    names: Sequence[str], judged: bool
) -> Literal["language", "preference", "demonstration"]:
    if "chosen" in names or "rejected" in names:
        return "preference"
    shown = "completion" in names and not (judged or "reward_model" in names)
    return "demonstration" if shown else "language"


def _check_row(row: Mapping[str, Any], parts: Sequence[str], place: str) -> None:
    if not any(value is not None for value in row.values()):
        raise UsageError(f"{place}: an empty row: remove it")
    for part in parts:
        value = row.get(part)
        if value is None:
            there = ", ".join(sorted(row))
            message = f"{place}: no {part!r} (columns: {there}): every row needs one"
            raise UsageError(message + nearest(part, row))
        if isinstance(value, str):
            empty = not value.strip() and part == "prompt"
        else:
            empty = _check_chat(value, f"{place}: the {part}")
        if empty:
            raise UsageError(f"{place}: the {part} is empty: give it text, or remove the row")


def _check_chat(value: Any, place: str) -> bool:
    """Whether the chat is empty; raises for what is no chat."""
    if not isinstance(value, list):
        cure = "it must be text, or a list of {role, content} messages"
        raise UsageError(f"{place} is {_kind(value)}: {cure}")
    for message in value:
        parts = [message.get(k) for k in ("role", "content")] if isinstance(message, dict) else [0]
        if not all(isinstance(part, str) for part in parts):
            cure = "each message must be an object with role and content, both text"
            raise UsageError(f"{place} has the message {str(message)[:60]}: {cure}")
    return not value


def _trim(row: Mapping[str, Any], parts: Sequence[str]) -> Row:
    """Messages without the keys that a table filled with None."""
    chats = {part: row[part] for part in parts if isinstance(row[part], list)}
    return {
        part: [{k: v for k, v in message.items() if v is not None} for message in chat]
        for part, chat in chats.items()
    }


def _check_column(values: Sequence[Any], name: str, source: str, unit: str) -> None:
    first: dict[str, int] = {}
    for n, value in enumerate(values, 1):
        if value is not None:
            first.setdefault(_kind(value), n)
    if len(first) > 1:
        (one, n), (other, m) = list(first.items())[:2]
        message = f"{source}, {unit} {m}: {name!r} is {other}, but it is {one} in {unit} {n}"
        raise UsageError(f"{message}: make the column one type")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    names = {str: "text", list: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")
