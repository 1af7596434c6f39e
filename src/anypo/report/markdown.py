"""Text as Markdown that means nothing: what a model or a user wrote cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from anypo.core.text import visible

MEANT = re.compile(r"[\\`*_\[\]|~$@]|:(?=//)|(?<=www)\.|^[-+#=]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")
"""What some renderer of Markdown obeys inside of a line or at its start; a backslash stops it."""

ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(value: Any) -> str:
    """A value as one line of words that no renderer reads as anything else."""
    line = MEANT.sub(lambda found: f"\\{found[0]}", " ".join(visible(value).split()))
    return "".join(ENTITIES.get(c, c) for c in line)


def code(value: Any) -> str:
    """A value as one line of code, whatever backticks it holds; a table's bars are kept apart."""
    line = " ".join(visible(value).split()).replace("|", "\u2223")
    if not line:
        return ""
    fence = "`" * (longest(line) + 1)
    room = " " if line[0] == "`" or line[-1] == "`" else ""
    return f"{fence}{room}{line}{room}{fence}"


def block(text: Any, language: str = "") -> str:
    """Lines as a block of code, whatever backticks they hold."""
    shown = visible(text).strip("\n")
    fence = "`" * max(3, longest(shown) + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def longest(text: str) -> int:
    """The longest run of backticks."""
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def marked(text: str) -> str:
    """Our own prose, whose code stands in backticks; everything else is plain."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    shown = [code(part) if i % 2 else _spaced(part) for i, part in enumerate(parts)]
    return "".join(shown)


def _spaced(part: str) -> str:
    """Plain, with the blanks at its ends that part it from code."""
    inner = plain(part)
    return f"{' ' * part.startswith(' ')}{inner}{' ' * (part.endswith(' ') and bool(inner))}"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
