"""`anypo evaluate --lm-eval`: the tasks of another harness."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from anypo.core.errors import UsageError

TAKES = frozenset(
    "policy n seed precision config json lm_eval lm_eval_include lm_eval_chat".split()
)


def harness(options: Any, given: Mapping[str, str]) -> int:
    """Print one row for each metric; refuses options that ask questions of our own."""
    tasks = [name.strip() for name in options.lm_eval.split(",") if name.strip()]
    if not tasks:
        raise UsageError("name the tasks of lm-eval: --lm-eval TASK[,TASK]")
    for name in given:
        if name not in TAKES:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} does not act on tasks of lm-eval: leave it out")
    from anypo import api
    from anypo.cli.scores import finite
    from anypo.cli.screen import console, print_json, table

    found = api.harness(
        options.policy,
        tasks,
        include=options.lm_eval_include,
        n=options.n if "n" in given else 0,
        chat=options.lm_eval_chat,
        seed=options.seed,
        precision=options.precision,
    )
    if options.json:
        print_json({"lm_eval": [{**vars(m), **finite(_numbers(m))} for m in found]})
        return 0
    rows = [
        (
            m.task,
            m.name,
            f"{m.value:.4g}",
            "" if m.stderr is None else f"± {m.stderr:.2g}",
            m.questions,
        )
        for m in found
    ]
    columns = ("task", "metric", "value", "standard error", "questions")
    title = f"{options.policy or 'smollm2-135m'}, measured by lm-eval"
    console(sys.stdout).print(table(columns, rows, title, right=columns[2:]))
    return 0


def _numbers(metric: Any) -> dict[str, float]:
    return {name: x for name in ("value", "stderr") if (x := getattr(metric, name)) is not None}
