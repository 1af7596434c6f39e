"""`anypo translate`: a configuration of TRL, verl or Stable-Baselines3 as a command of this one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from anypo.cli.options import Flag, gather, parse, said
from anypo.core.errors import UsageError


@dataclass(frozen=True)
class Translate:
    """What a configuration of another library is here, key by key; the file is not run."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]
    """a Python file with a call of TRL or Stable-Baselines3, a YAML file of TRL or verl, or a
    shell script with a command line of verl or trl"""
    trainer: Annotated[str, said("TRL's, where a YAML file does not tell", "NAME", "")] = ""
    line: Annotated[int, said("which call of a Python file, where there are several", "N", "")] = 0
    devices: int = 1
    """processes that TRL runs on"""
    rows: Annotated[int, said("rows of the data set, to turn epochs into iterations", "N", "")] = 0
    out: Annotated[str, said("write the options for anypo train --config", "FILE.yaml", "")] = ""
    strict: Flag = False
    """exit with 1 where a key has no counterpart, is unknown or cannot be read"""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print every key, then the command, and what only Python can say."""
    options = parse(Translate, gather(Translate, words), "translate")
    if options.devices < 1 or options.rows < 0:
        raise UsageError("--devices must be at least 1, and --rows at least 0")
    from anypo.cli.screen import console, print_json
    from anypo.translate import translate

    found = translate(
        options.file,
        trainer=options.trainer,
        line=options.line,
        devices=options.devices,
        rows=options.rows,
    )
    if options.out:
        Path(options.out).write_text(found.config, "utf-8")
    if options.json:
        print_json(found.json)
    else:
        show(console(sys.stdout), found, options.out)
    return int(options.strict and bool(found.gaps))


SIGNS = {
    "same": ("", ""),
    "differs": ("differs: ", "yellow"),
    "none": ("no counterpart: ", "red"),
    "idle": ("not needed: ", "dim"),
    "unknown": ("unknown to this table: ", "red"),
    "unread": ("not readable: ", "red"),
}
"""Verdict → how a remark begins, and its colour."""


def show(screen: Any, found: Any, out: str) -> None:
    """Tables, the command, and Python."""
    from anypo.cli.screen import cell, python, table
    from anypo.translate import VERSIONS

    title = f"{VERSIONS[found.library]}, {found.trainer}"
    given = [_row(x) for x in found.lines if not x.silent]
    silent = [_row(x)[1:] for x in found.lines if x.silent]
    columns = ("line", "there", "here", "remark")
    screen.print(table(columns, given, title, right=("line",)))
    screen.print(table(columns[1:], silent, "What it does without being told"))
    screen.print(cell(found.command), soft_wrap=True)
    if out:
        screen.print(cell(f"anypo train --config {out}"), soft_wrap=True)
    if found.python:
        screen.print()
        screen.print("In Python, for what a command line cannot say:")
        screen.print(python(screen, found.python), soft_wrap=True)
    if found.gaps:
        count = len(found.gaps)
        screen.print(f"\n{count} key{'s' * (count != 1)} left out: see the lines above")


def _row(line: Any) -> tuple[Any, ...]:
    from anypo.cli.screen import cell

    return (str(line.line or ""), line.source, line.ours, cell(*_remark(line)))


def _remark(line: Any) -> tuple[str, str]:
    sign, style = SIGNS[line.verdict]
    text = f"{sign}{line.remark}" if line.remark else sign.rstrip(": ")
    return text, style
