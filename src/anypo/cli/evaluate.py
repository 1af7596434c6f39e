"""`anypo evaluate`: greedy accuracy of a policy on a task's questions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from anypo.cli.options import Config, Dataset, Flag, Judge, Named, Precision, gather, parse, said

POLICY = said(
    "a policy by name, a checkpoint folder, or a run folder for its last checkpoint; "
    "--policy POLICY says the same",
    "[POLICY]",
    "smollm2-135m",
)


@dataclass(frozen=True)
class Evaluate:
    """Greedy exact-answer accuracy of a policy on seen and held-out questions of a task."""

    policy: Annotated[tyro.conf.Positional[str], POLICY] = ""
    task: Named = ""
    dataset: Dataset = ""
    reward: Judge = ""
    n: int = 100
    """most questions of each side"""
    seed: int = 0
    """of the split into seen and held-out questions"""
    precision: Precision = ""
    config: Config = ""
    json: Flag = False
    """print one JSON object instead of a table"""


def run(words: list[str]) -> int:
    """Print one row per side."""
    given = gather(Evaluate, words)
    options = parse(Evaluate, given, "evaluate", free=("task.",))
    from anypo import api
    from anypo.cli.results import SIDES, TITLE, accuracy
    from anypo.cli.screen import console, print_json, table
    from anypo.cli.train import inner

    policy = newest(options.policy)
    scores = api.evaluate(
        policy,
        options.task,
        options.n,
        reward=options.reward,
        dataset=options.dataset,
        seed=options.seed,
        precision=options.precision,
        task_options=inner(given, "task."),
    )
    found = {side: (s.correct, s.total, s.accuracy, *s.interval) for side, s in scores.items()}
    if options.json:
        keys = ("correct", "total", "accuracy", "low", "high")
        print_json({side: dict(zip(keys, v, strict=True)) for side, v in found.items()})
        return 0
    facts = {f"{s}/{k}": v for s, vs in found.items() for k, v in zip(("correct", "total"), vs)}
    rows = [(SIDES[side], accuracy(facts, side)) for side in found]
    console(sys.stdout).print(table(("", "accuracy"), rows, TITLE, right=("accuracy",)))
    return 0


def newest(policy: str) -> str:
    """The last checkpoint of a run's folder; anything else as it is."""
    from anypo.core.errors import UsageError
    from anypo.engine.checkpoint import found

    folder = Path(policy)
    if not policy or not (folder / "anypo.json").is_file():
        return policy
    if not (there := found(folder)):
        raise UsageError(f"{folder} has no checkpoint yet: let the run write one")
    return str(there[-1])
