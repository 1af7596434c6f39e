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
) -> tuple[list[Row], Kind]:
    """The rows with every column in each (None where absent), and the kind of task they make.

    `chosen` and `rejected` make a preference task; `completion`, `messages` or `text` make one of
    demonstrations, where nothing judges answers. Prompts, and those, are text or a chat
    (`[{role, content}, …]`), the same kind in all rows; other columns are whatever rewards take, of
    one type each. Rows of demonstrations come back with `prompt` and `completion`: a conversation
    is parted before the first message of the assistant, a text has the prompt None. Their `tools`
    become a list, whether they were written as one or as JSON.

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
    kind, parts = _task_of(names, judged)
    for n, row in enumerate(rows, 1):
        _check_row(row, parts, f"{source}, {unit} {n}")
    for name in names:
        _check_column([row.get(name) for row in rows], name, source, unit)
    full = [{name: row.get(name) for name in names} | _trim(row, parts) for row in rows]
    if kind == "language":
        return full, kind
    places = (f"{source}, {unit} {n}" for n in range(1, 1 + len(rows)))
    return [_given(row, parts, place) for row, place in zip(full, places, strict=False)], kind


Kind = Literal["language", "preference", "demonstration"]


def _task_of(names: Sequence[str], judged: bool) -> tuple[Kind, tuple[str, ...]]:
    """The kind of task that these columns make, and those that must hold words."""
    if "chosen" in names or "rejected" in names:
        return "preference", ("prompt", "chosen", "rejected")
    if judged or "reward_model" in names:
        return "language", ("prompt",)
    if "completion" in names:
        return "demonstration", ("prompt", "completion")
    if "messages" in names:
        return "demonstration", ("messages",)
    if "text" in names and "prompt" not in names:
        return "demonstration", ("text",)
    return "language", ("prompt",)


def _given(row: Row, parts: Sequence[str], place: str) -> Row:
    """A row that holds its answers, with `prompt`, the answers, and `tools` where it has some."""
    row = _with_tools(row, place)
    if parts == ("text",):
        return {"prompt": None, "completion": row.pop("text"), **row}
    if parts == ("messages",):
        chat = row.pop("messages")
        first = next((k for k, m in enumerate(chat) if m["role"] == "assistant"), 0)
        if not first:
            cure = "it needs messages before the first one of the assistant, and one of those"
            raise UsageError(f"{place}: the messages hold nothing to be answered: {cure}")
        return {**row, "prompt": chat[:first], "completion": chat[first:]}
    for part in parts[1:]:
        answer = row[part]
        if isinstance(answer, list) and all(m["role"] != "assistant" for m in answer):
            cure = "only the assistant's messages are trained, so it needs one"
            raise UsageError(f"{place}: the {part} has no message of the assistant: {cure}")
    return row


def _with_tools(row: Row, place: str) -> Row:
    tools = row.get("tools")
    if tools is None:
        return {name: value for name, value in row.items() if name != "tools"}
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except json.JSONDecodeError:
            tools = None
    if not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        cure = "give a list of objects, in JSON or as it is, or leave the column out"
        raise UsageError(f"{place}: the tools are no list of descriptions: {cure}")
    return {**row, "tools": _filled(tools)}


def _check_row(row: Mapping[str, Any], parts: Sequence[str], place: str) -> None:
    if not any(value is not None for value in row.values()):
        raise UsageError(f"{place}: an empty row: remove it")
    for part in parts:
        value = row.get(part)
        if value is None:
            there = ", ".join(sorted(row))
            message = f"{place}: no {part!r} (columns: {there}): every row needs one"
            raise UsageError(message + (nearest(part, row) or _hint(part, row)))
        if part == "text" and not isinstance(value, str):
            raise UsageError(f"{place}: the text is {_kind(value)}: make it text")
        if isinstance(value, str) and part != "messages":
            empty = not value.strip() and part in ("prompt", "text")
        else:
            empty = _check_chat(value, f"{place}: the {part}")
        if empty:
            raise UsageError(f"{place}: the {part} is empty: give it text, or remove the row")


def _hint(part: str, row: Mapping[str, Any]) -> str:
    if part != "prompt" or not {"messages", "text"} & {*row}:
        return ""
    return "; rows with messages or text are demonstrations, if no reward function is given"


def _check_chat(value: Any, place: str) -> bool:
    """Whether the chat is empty; raises for what is no chat."""
    if not isinstance(value, list):
        or_text = "" if isinstance(value, str) else "text, or "
        cure = f"it must be {or_text}a list of {{role, content}} messages"
        raise UsageError(f"{place} is {_kind(value)}: {cure}")
    for message in value:
        if not (isinstance(message, dict) and _is_message(message)):
            cure = "each message must be an object with role and content, both text"
            raise UsageError(f"{place} has the message {str(message)[:60]}: {cure}")
    return not value


def _is_message(message: Mapping[str, Any]) -> bool:
    """A call of tools needs no words."""
    calls = message.get("tool_calls") and message.get("content") is None
    return isinstance(message.get("role"), str) and (
        bool(calls) or isinstance(message.get("content"), str)
    )


def _trim(row: Mapping[str, Any], parts: Sequence[str]) -> Row:
    """Messages without the keys that a table filled with None."""
    return {part: _filled(row[part]) for part in parts if isinstance(row[part], list)}


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _filled(v) for k, v in value.items() if v is not None}
    return [_filled(v) for v in value] if isinstance(value, list) else value


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
