"""Finished runs that somebody has, compared as they are: grouped by method, refused if unlike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anypo.api.contest import PLAN, UNITS
from anypo.core.errors import UsageError

if TYPE_CHECKING:
    from anypo.report.comparison import Comparison
    from anypo.report.outcomes import Outcome

APART = 1.1
"""How many times one method may have spent what another did and still count as equal."""

AS_FOUND = "Runs as they were found: how their settings were chosen is not recorded."

SEEDED = frozenset({"seed"})
"""What differs between the seeds of one method, and is no difference of task or policy."""


def found(
    folders: Sequence[Path],
    out: Path | None,
    budget: str,
    unequal: bool,
    metric: str = "",
    level: float | None = None,
    command: str = "",
) -> Comparison:
    """Compare finished runs: those of the folders, and all those of a comparison's folder.

    Raises `UsageError` where a run is unfinished, where a method has a seed twice, or where task,
    policy or what was spent differ, unless `unequal`.
    """
    from anypo.report.comparison import compared, standing
    from anypo.report.outcomes import METRICS, outcome

    unit = budget or "completions"
    if unit not in UNITS:
        raise UsageError(f"budget={budget!r}: of finished runs, write {', '.join(UNITS)}")
    labels = labelled([run for folder in folders for run in runs(folder)])
    ended = [outcome(run, metric, label) for run, label in labels.items()]
    groups: dict[str, list[Outcome]] = {}
    for one in ended:
        groups.setdefault(one.label, []).append(one)
    if len(groups) < 2:
        raise UsageError(f"all these runs are of one method, {ended[0].label}: name two or more")
    _once(groups)
    differences = [d for d in (differing(ended), spent_apart(groups, unit)) if d]
    if differences and not unequal:
        raise UsageError(f"{differences[0]}. --unequal compares them all the same")
    kind = str((ended[0].facts.get("task") or {}).get("kind", ""))
    scored = metric or METRICS.get(kind, "reward")
    amount = max(o.spent[unit] for o in ended)
    standings = [
        standing(label, mine, scored, tuned="not recorded") for label, mine in groups.items()
    ]
    kept = {"out": out or folders[0].parent, "notes": (AS_FOUND, *map(_noted, differences))}
    return compared(standings, scored, unit, amount, level, command=command, **kept)


def runs(folder: Path) -> list[Path]:
    """The run of a folder, or the reported runs of a comparison's."""
    if (folder / "anypo.json").is_file():
        return [folder]
    if not (folder / PLAN).is_file():
        raise UsageError(f"{folder} holds no run and no comparison: name a folder of a run")
    inside = sorted(folder.glob("*/seed-*/anypo.json"))
    if not inside:
        raise UsageError(f"{folder} is a comparison without a run yet: start it again")
    return [file.parent for file in inside]


def labelled(folders: Sequence[Path]) -> dict[Path, str]:
    """Run → what it stands for: its method, with the arguments where several recipes share it."""
    facts = {f: json.loads((f / "anypo.json").read_text("utf-8")) for f in dict.fromkeys(folders)}
    known: dict[str, dict[str, str]] = {}
    for folder, fact in facts.items():
        recipes = known.setdefault(str(fact.get("method", "run")), {})
        recipes.setdefault(json.dumps(fact.get("recipe"), sort_keys=True), _called(folder, fact))
    found = {}
    for folder, fact in facts.items():
        method = str(fact.get("method", "run"))
        recipes = known[method]
        own = recipes[json.dumps(fact.get("recipe"), sort_keys=True)]
        alone = len(recipes) == 1
        clear = len({*recipes.values()}) == len(recipes)
        found[folder] = method if alone else own if clear else f"{method} ({folder.name})"
    return found


def _called(folder: Path, facts: Mapping[str, Any]) -> str:
    given = ", ".join(f"{k}={v}" for k, v in (facts.get("given") or {}).items())
    return f"{facts.get('method', 'run')}{':' if given else ''}{given}"


def _once(groups: Mapping[str, Sequence[Outcome]]) -> None:
    for label, mine in groups.items():
        seeds = [o.seed for o in mine]
        for o in mine:
            if seeds.count(o.seed) > 1:
                raise UsageError(
                    f"{label} is here twice with seed {o.seed} ({o.out}): name each run once, or "
                    "give them different seeds"
                )


def differing(ended: Sequence[Outcome]) -> str:
    """How task or policy of some run differ from those of the first; empty where they do not."""
    for key in ("task", "policy"):
        first = _plain(ended[0].facts.get(key))
        for one in ended[1:]:
            here = _plain(one.facts.get(key))
            for name in sorted({*first, *here}):
                if first.get(name) != here.get(name):
                    return (
                        f"the {key} differs: {name} is {first.get(name)!r} in {ended[0].out} and "
                        f"{here.get(name)!r} in {one.out}"
                    )
    return ""


def _plain(facts: Any) -> dict[str, Any]:
    return {k: v for k, v in (facts or {}).items() if k not in SEEDED}


def spent_apart(groups: Mapping[str, Sequence[Outcome]], unit: str) -> str:
    """How far the methods' budgets lie apart; empty where they are equal, or nearly."""
    spent = {label: float(np.mean([o.spent[unit] for o in mine])) for label, mine in groups.items()}
    least, most = min(spent, key=lambda k: spent[k]), max(spent, key=lambda k: spent[k])
    if spent[most] <= APART * spent[least]:
        return ""
    others = " or ".join(u for u in UNITS if u != unit)
    return (
        f"the budget differs: a run of {least} took {spent[least]:.0f} {unit}, one of {most} "
        f"{spent[most]:.0f} (--budget {others} measures it otherwise)"
    )


def _noted(difference: str) -> str:
    return f"Unequal: {difference}."
