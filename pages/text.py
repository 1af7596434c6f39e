"""Plain text as Markdown: code in backticks stays code, everything else is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

ENTITIES = {"<": "&lt;", ">": "&gt;", "|": "&#124;"}


def escaped(text: str) -> str:
    """Text in which only backticks mean something: `A*-PO` and `x_i` are no emphasis."""
    parts = re.split(r"(``?[^`]+``?)", text)
    return "".join(p if i % 2 else _plain(p) for i, p in enumerate(parts))


def _plain(text: str) -> str:
    marked = re.sub(r"([\\*_\[\]])", r"\\\1", text)
    return "".join(ENTITIES.get(c, c) for c in marked)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; a bar inside code would end the cell."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """A bar in code is written as its twin, for not every reader of Markdown lets it be escaped."""
    code = re.sub(r"`[^`]*`", lambda m: m[0].replace("|", "∣"), text)
    return code.replace("\n", "<br>")


def code(text: str) -> str:
    """A word as code; nothing for an empty one."""
    return f"`{text}`" if text else ""
