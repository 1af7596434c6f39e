"""`anypo diff`: the fields in which two methods differ, and what that does to gradients."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anypo.cli.options import Flag, gather, parse


@dataclass(frozen=True)
class Diff:
    """Compare two methods with their default arguments."""

    left: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="LEFT")]
    """a method's name"""
    right: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RIGHT")]
    """another method's name"""
    json: Flag = False
    """print one JSON object"""


def run(words: list[str]) -> int:
    """Print the fields that differ, and the pushes on synthetic steps."""
    options = parse(Diff, gather(Diff, words), "diff")
    from anypo import api
    from anypo.cli.screen import console, print_json, table

    infos = [api.find(name).info for name in (options.left, options.right)]
    recipes = [info.build() for info in infos]
    fields, pushes = differences(*recipes), compared(*recipes)
    names = tuple(info.name for info in infos)
    if options.json:
        keys = ("axis", "field", *names)
        print_json(
            {
                "fields": [dict(zip(keys, row, strict=True)) for row in fields],
                "gradient": [dict(zip(("steps", *names), row, strict=True)) for row in pushes],
            }
        )
        return 0
    screen = console(sys.stdout)
    if not fields:
        screen.print(f"{names[0]} and {names[1]} are the same recipe")
        return 0
    screen.print(table(("axis", "field", *names), fields, "Fields that differ"))
    screen.print()
    shown = [(label, *(_number(x) for x in values)) for label, *values in pushes]
    screen.print(table(("steps", *names), shown, PUSH, right=names))
    screen.print("of a synthetic batch; 1 is the mean size over its steps, + makes a step likelier")
    return 0


PUSH = "How hard a step's log-probability is pushed"


def differences(left: Any, right: Any) -> list[tuple[str, str, str, str]]:
    """Axis letter, path, and both values, where they differ; `–` for a field that is not there."""
    from anypo.core.dump import rows
    from anypo.core.explain import AXES

    a, b = rows(left), rows(right)
    paths = [p for p in {**a, **b} if a.get(p) != b.get(p)]
    paths.sort(key=lambda p: list(AXES).index(p.split(".")[0]) if p.split(".")[0] in AXES else 9)
    return [(AXES.get(p.split(".")[0], ""), p, a.get(p, "–"), b.get(p, "–")) for p in paths]


def compared(left: Any, right: Any) -> list[tuple[str, float | None, float | None]]:
    """Kind of step → the mean push on it under either recipe; None where there is no such step."""
    from anypo.engine.dry import pushes

    a, b = pushes(left), pushes(right)
    return [(kind, a.get(kind), b.get(kind)) for kind in {**a, **b}]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
