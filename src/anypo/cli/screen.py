"""The terminal: hostile text made visible, consoles, tables, and a run's progress."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from anypo.report.text import visible

WIDTH = 160
"""Columns where the output is no terminal: a line that a script reads should not be folded."""


def cell(value: Any, style: str = "") -> Text:
    """A value as text that is not markup."""
    return Text(visible(value), style=style)


class Screen(Console):
    """A console that leaves it to the command line what a reader who stopped reading means."""

    def on_broken_pipe(self) -> None:
        """Rich would exit with status 1."""
        raise BrokenPipeError


def console(stream: TextIO) -> Console:
    """A console that reads no markup, no emoji names, and guesses no colours."""
    width = None if stream.isatty() else WIDTH
    return Screen(file=stream, width=width, markup=False, emoji=False, highlight=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    title: str = "",
    right: Sequence[str] = (),
) -> Table:
    """A table; `right` names the columns of numbers."""
    heading = Text(visible(title)) if title else None
    made = Table(
        title=heading, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE
    )
    for name in columns:
        made.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(v if isinstance(v, Text) else cell(v) for v in row))
    return made


def grid(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what there is to say of each, without lines; a repeated name is left out."""
    made = Table.grid(padding=(0, 2))
    last = ""
    for name, text in rows:
        made.add_row(cell("" if name == last else name, style="dim"), cell(text))
        last = name
    return made


def joined(sentence: str, formula: str) -> Text:
    """A sentence, and below it a formula where there is one."""
    return Text("\n").join([cell(sentence), *([cell(formula, style="cyan")] if formula else ())])


def python(screen: Console, code: str) -> Any:
    """Code as it is; in colours where someone looks."""
    if not screen.is_terminal:
        return cell(code)
    return Syntax(visible(code), "python", theme="ansi_dark", background_color="default")


def print_json(value: Any) -> None:
    """One JSON object for a script; what is not finite is null."""
    print(json.dumps(value, allow_nan=False))
