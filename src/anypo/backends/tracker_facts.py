"""What a tracker is told of a run: numbers, the recipe flat, a few completions, and no secret."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anypo.core.text import visible

WORD = r"(?:api[_-]?key|key|token|secret|password|passwd|credentials?|authorization)"
SECRET = re.compile(rf"(?i)(?:^|[._-]){WORD}$")
"""The name of a setting whose value is nobody's business."""

OPTION = re.compile(rf"(?i)(--?[\w.-]*?{WORD}(?:=|\s+))(\S+)")
LOOKS = re.compile(
    r"\b(?:sk-|hf_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{12,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)|(?i:(?<=bearer )\S+)"
)
"""A key by its usual beginnings, a name with a password in an address, a bearer's token."""

HIDDEN = "[hidden]"
MOST, LONGEST = 8, 2000


def config(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`anypo.json` for a tracker: without the folder's path, without secrets."""
    return scrubbed({k: v for k, v in facts.items() if k != "out"})


def scrubbed(value: Any, name: str = "") -> Any:
    """The value with what looks like a secret written as `[hidden]`, by its name or by its text."""
    if isinstance(value, Mapping):
        return {str(k): scrubbed(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [scrubbed(v, name) for v in value]
    if not isinstance(value, str):
        return value
    if value and SECRET.search(name):
        return HIDDEN
    return LOOKS.sub(HIDDEN, OPTION.sub(rf"\1{HIDDEN}", value))


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row of metrics, without its step."""
    plain = {k: float(v) for k, v in row.items() if isinstance(v, (int, float)) and k != "step"}
    return {k: v for k, v in plain.items() if math.isfinite(v)}


def flat(value: Any, path: str = "", dot: str = ".") -> dict[str, Any]:
    """Nested mappings and lists as path → value, the path's words joined by `dot`."""
    if isinstance(value, Mapping):
        items = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(str(k), v) for k, v in enumerate(value)]
    else:
        return {path: value}
    found: dict[str, Any] = {}
    for key, inner in items:
        found |= flat(inner, f"{path}{dot}{key}" if path else key, dot)
    return found


def sample(out: Path, step: int) -> list[dict[str, Any]]:
    """A few completions of a recorded iteration, harmless and short; none where none are kept."""
    file = out / "completions" / f"step_{step:05d}.parquet"
    if not file.exists():
        return []
    from anypo.backends.parquet import read_rows

    return [_short(row) for row in read_rows(file)[:MOST]]


def _short(row: Mapping[str, Any]) -> dict[str, Any]:
    """Texts and numbers alone: tokens and their gradients are for the report."""
    plain = {k: v for k, v in row.items() if isinstance(v, (str, int, float, type(None)))}
    return {k: visible(v[:LONGEST]) if isinstance(v, str) else v for k, v in plain.items()}


def block(text: str) -> str:
    """Text as a code block of Markdown that nothing in it can end."""
    return "\n".join(f"    {line}" for line in text.split("\n"))


def kept(out: Path) -> dict[str, dict[str, Any]]:
    """Tracker → its run's id and the last iteration that it has; empty where nothing is kept."""
    try:
        return json.loads((out / "trackers.json").read_text())
    except (OSError, json.JSONDecodeError):
        return {}


def remember(out: Path, name: str, run: str, last: int) -> None:
    """Keep what a resumed run must know."""
    file = out / "trackers.json"
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({**kept(out), name: {"run": run, "last": last}}))
    os.replace(partial, file)
