"""Recorded completions for a page: cut to a size that a browser bears, and what that leaves out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from anypo.backends.parquet import Table
from anypo.report.text import visible

MOST_ITERATIONS, MOST_ROWS, MOST_CHARACTERS = 60, 128, 1500
"""Iterations of a page, completions of each, and characters of a text."""

MOST_IN_ALL, MOST_COLOURED = 4_000_000, 3_000_000
"""Bytes of all texts and numbers of a page, and of what colours their tokens."""

LEVELS = 9999
"""Steps of the scale on which the gradients of one completion's tokens are kept."""

ORDER = ("prompt", "completion", "rewards/", "score", "reward", "advantage", "group", "truncated")
HIDDEN = frozenset({"step", "tokens", "gradient"})
Row = dict[str, Any]


@dataclass
class Step:
    """The completions of one recorded iteration: as many as a page keeps, of `total`.

    `limit` is the gradient per token at which a colour is full, `pull` the sum of all gradients'
    sizes in the iteration; both 0 where the run recorded none.
    """

    step: int
    total: int
    rows: list[Row] = field(default_factory=list)
    limit: float = 0.0
    pull: float = 0.0


def recorded(out: Path) -> dict[int, Path]:
    """Iteration → the file of its completions, in order."""
    files = (out / "completions").glob("step_*.parquet")
    known = {int(f.stem[5:]): f for f in files if re.fullmatch(r"step_\d{1,12}", f.stem)}
    return dict(sorted(known.items()))


def spread(items: list[Any], most: int) -> list[Any]:
    """At most so many items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def read_steps(out: Path, most: int = 0) -> tuple[dict[int, Step], str]:
    """The completions of at most so many iterations, and a sentence on what is not among them."""
    files = recorded(out)
    kept = spread(list(files), most or MOST_ITERATIONS)
    room = MOST_COLOURED // max(1, len(kept))
    steps = {step: read_step(step, Table(files[step]), room) for step in kept}
    cut = any(row["cut"] for step in steps.values() for row in step.rows)
    longest, shown = max((s.total for s in steps.values()), default=0), _fit(steps)
    coloured = _fit_colours(steps)
    said = {
        f"{len(kept)} of {len(files)} recorded iterations": len(kept) < len(files),
        f"the first {shown} of {longest} completions of each": longest > shown,
        f"the first {MOST_CHARACTERS} characters of long texts": cut,
        f"the colours of the first {coloured} completions of each": 0 <= coloured < shown,
    }
    words = ", ".join(text for text, true in said.items() if true)
    return steps, f"This page holds {words}; anypo watch shows all." if words else ""


def read_step(step: int, table: Table, room: int) -> Step:
    """The first completions of an iteration, the first of them with colours of so many bytes."""
    picks = range(min(table.count, MOST_ROWS))
    return Step(step, table.count, read_some(table, picks, room), *scale(table))


def read_some(table: Table, picks: Sequence[int], room: int) -> list[Row]:
    """Some rows of a file; those that come first have colours, as long as there is room."""
    rows = table.rows(picks, [n for n in table.names if n not in HIDDEN])
    found = [cut_row(row, k) for k, row in zip(picks, rows, strict=True)]
    names = [n for n in ("tokens", "gradient") if n in table.names and not table.is_text(n)]
    for row in found if len(names) == 2 else ():
        (marks,) = table.rows([row["index"]], names)
        row["colours"] = colours(row.get("completion"), marks["tokens"], marks["gradient"])
        room -= size_of(row["colours"])
        if room < 0:
            row["colours"] = None
            break
    return found


def size_of(value: Any) -> int:
    """Bytes of a value in a page."""
    return len(json.dumps(value, separators=(",", ":")))


def scale(table: Table) -> tuple[float, float]:
    """The gradient at which a colour is full (95 of 100 lie below it), and the sum of all sizes."""
    if "gradient" not in table.names or table.is_text("gradient"):
        return 0.0, 0.0
    sizes = table.sizes("gradient")
    sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
    return (float(np.quantile(sizes, 0.95)), float(sizes.sum())) if len(sizes) else (0.0, 0.0)


def cut_row(row: Mapping[str, Any], index: int) -> Row:
    """A row whose texts are cut and visible, with its place in the file, and without colours yet.

    `cut` says of each text that was cut how many characters it has in all.
    """
    out: Row = {k: shortened(v) for k, v in row.items() if k not in HIDDEN}
    texts = {k: v for k, v in row.items() if k not in HIDDEN and isinstance(v, str)}
    out["cut"] = {k: len(v) for k, v in texts.items() if len(v) > MOST_CHARACTERS}
    return {**out, "index": index, "colours": None}


def shortened(value: Any) -> Any:
    """A value for a cell: a number, a truth value, None, or a text, visible and not too long."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return visible(text[:MOST_CHARACTERS]) + ("…" if len(text) > MOST_CHARACTERS else "")


def colours(completion: Any, tokens: Any, gradient: Any, most: int = 0) -> list[Any] | None:
    """`[unit, tokens, steps]`: each token and its gradient in steps of `unit`; None without any.

    Tokens are given by the length of their text where together they are the completion, else by
    their text. Both stop where the completion is cut (or at `most` characters).
    """
    if not isinstance(tokens, list) or not isinstance(gradient, list) or not tokens:
        return None
    shown, room = [], most or MOST_CHARACTERS
    for text in tokens[:room]:
        shown.append(_token(str(text)[:room]))
        room -= len(str(text))
        if room <= 0:
            break
    sizes = [g if isinstance(g, float) and math.isfinite(g) else 0.0 for g in gradient]
    sizes = sizes[: len(shown)]
    unit = float(f"{max(map(abs, sizes), default=0.0) / LEVELS:.6g}")
    steps = [round(g / unit) if unit else 0 for g in sizes]
    whole = isinstance(completion, str) and completion.startswith("".join(shown))
    same = whole and len("".join(shown)) >= len(completion.removesuffix("…"))
    return [unit, [len(t) for t in shown] if same else shown, steps]


@lru_cache(4096)
def _token(text: str) -> str:
    return visible(text)


def _fit(steps: Mapping[int, Step]) -> int:
    """Cut iterations alike until all fit into a page; returns how many rows each may have."""
    rows = [row for s in steps.values() for row in s.rows]
    size = len(json.dumps([{**row, "colours": None} for row in rows]))
    longest = max((len(s.rows) for s in steps.values()), default=0)
    most = longest if size <= MOST_IN_ALL else max(1, longest * MOST_IN_ALL // size)
    for step in steps.values():
        step.rows = step.rows[:most]
    return most


def _fit_colours(steps: Mapping[int, Step]) -> int:
    """As many coloured completions for each iteration; −1 where the run recorded no gradient."""
    coloured = [s for s in steps.values() if s.limit]
    counts = [sum(row["colours"] is not None for row in s.rows) for s in coloured]
    short = [n for s, n in zip(coloured, counts, strict=True) if n < len(s.rows)]
    most = min(short, default=max(counts, default=-1))
    for step in steps.values():
        for row in step.rows[max(most, 0) :]:
            row["colours"] = None
    return most


def columns(steps: Iterable[Step]) -> list[str]:
    """The columns to show, in order; a score that nothing shaped is no column beside the reward."""
    rows = [row for step in steps for row in step.rows]
    names = list(dict.fromkeys(k for row in rows for k in row))
    gone = HIDDEN | {"cut", "colours", "index"}
    if all(row.get("score") == row.get("reward") for row in rows):
        gone |= {"score"}
    if not any(row.get("truncated") for row in rows):
        gone |= {"truncated"}
    place = lambda name: next((i for i, o in enumerate(ORDER) if name.startswith(o)), len(ORDER))  # noqa: E731
    return sorted((n for n in names if n not in gone), key=place)


def browsable(steps: Mapping[int, Step]) -> dict[str, Any]:
    """What a page browses; what all prompts begin and end with is kept once."""
    head, tail = framed(str(row.get("prompt", "")) for s in steps.values() for row in s.rows)
    names = columns(steps.values())
    tables = []
    for s in steps.values():
        table = [packed(row, names, head, tail) for row in s.rows]
        facts = {"step": s.step, "total": s.total, "limit": s.limit, "pull": s.pull}
        tables.append({**facts, "rows": table})
    return {"columns": names, "head": head, "tail": tail, "steps": tables}


def packed(row: Row, names: Sequence[str], head: str, tail: str) -> dict[str, Any]:
    """Cells in the order of the columns, and what else there is to say of a row."""
    cells = [_inner(row, name, head, tail) for name in names]
    more = {"cut": row["cut"], "colours": row["colours"]}
    return {"index": row["index"], "cells": cells, **{k: v for k, v in more.items() if v}}


def framed(prompts: Iterable[str]) -> tuple[str, str]:
    """The whole lines with which all of some prompts begin, and those with which they end."""
    known = sorted({*prompts})
    if len(known) < 2:
        return "", ""
    head = _whole_lines(common(known))
    tail = _whole_lines(common(sorted(p[len(head) :][::-1] for p in known)))[::-1]
    return head, tail


def common(texts: list[str]) -> str:
    """What all of some sorted texts begin with."""
    first, last = texts[0], texts[-1]
    same = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return first[: next(same, min(len(first), len(last)))]


def _whole_lines(text: str) -> str:
    """A text up to the end of its last line: a common part should not cut a word."""
    return text[: text.rfind("\n") + 1]


def _inner(row: Row, name: str, head: str, tail: str) -> Any:
    value = row.get(name)
    if name != "prompt" or not isinstance(value, str):
        return value
    return value[len(head) : len(value) - len(tail)]
