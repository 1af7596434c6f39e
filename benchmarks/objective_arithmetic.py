"""What a recipe's arithmetic costs of an iteration: `python -m benchmarks.objective_arithmetic`.

For every language recipe: shaping, selection, credit, weights, the probe for steps without a
gradient, and the loss with its gradient on the columns, on a synthetic batch of the shape of the
first run (16 prompts × the recipe's group, answers up to the task's horizon). Beside it the same
process runs iterations of a real policy with as many trajectories: GRPO without a reference, one
visit of the batch, the cheapest iteration of that shape (REINFORCE where groups have one member).
A recipe with references, a critic or several visits has dearer ones.

Arithmetic is measured after every iteration, so that both see the same machine; medians are shown.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import transformers

import anypo
from anypo.backends.load_task import load_task
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core.batch import Batch
from anypo.core.recipe import Recipe
from anypo.engine import checkpoint, dry, loop
from anypo.engine.collect import credit, shape
from anypo.engine.problem import alive, weigh
from anypo.engine.settings import Settings

PHASES = ("shape", "keep", "credit", "weigh", "probe", "loss")
LIMIT = 2.0
"""Per cent of an iteration that the arithmetic should stay under."""


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", help="default: every language recipe")
    parser.add_argument("--policy", default="smollm2-135m")
    parser.add_argument("--task", default="arithmetic")
    parser.add_argument("--rounds", type=int, default=3, help="iterations that are measured")
    options = parser.parse_args()
    task = load_task(options.task, seed=0)
    policy = load_policy(options.policy, task=task)
    print(machine())
    print(f"{policy.name} on {task.name}, {Settings().prompts} prompts, horizon {task.horizon}")
    by_group: dict[int, list[str]] = defaultdict(list)
    for info in anypo.methods():
        language = info.domain in ("language", "any")
        if language and (not options.recipes or info.name in options.recipes):
            by_group[anypo.recipe(info.name).sampling.group].append(info.name)
    rows = []
    for group, names in sorted(by_group.items()):
        rows += measured(group, names, policy, task, options.rounds)
    show(rows)


def machine() -> str:
    """What it ran on."""
    chip = torch.cuda.get_device_name() if torch.cuda.is_available() else "no accelerator"
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, {chip}; "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, anypo {anypo.__version__}"
    )


def measured(
    group: int, names: list[str], policy: Any, task: Any, rounds: int
) -> Iterator[tuple[str, int, int, float, dict[str, float]]]:
    """Name, group, steps, seconds of an iteration, and seconds by phase, of recipes of one size."""
    base = anypo.recipe("grpo", group=group, beta=0.0) if group > 1 else anypo.recipe("reinforce")
    calls = {name: prepared(anypo.recipe(name), task.horizon) for name in names}
    spent: dict[str, dict[str, list[float]]] = {n: defaultdict(list) for n in names}
    iterations: list[float] = []

    def watch(row: dict[str, Any]) -> None:
        if row["step"] > 1:  # the first iteration, and the first calls, warm up
            iterations.append(row["step_time"])
        for name, (_, phases) in calls.items():
            for phase, call in phases.items():
                started = time.perf_counter()
                call()
                if row["step"] > 1:
                    spent[name][phase].append(time.perf_counter() - started)

    settings = Settings(steps=rounds + 1, eval_every=0, eval_size=1, record_every=0)
    with (
        tempfile.TemporaryDirectory() as out,
        patch.object(checkpoint, "save", lambda state, out: None),  # gigabytes, and no iteration's
    ):
        loop.train(base, task, policy, Local(task), settings, Path(out), watch)
    whole = statistics.median(iterations)
    print(f"groups of {group}: {1e3 * whole:.0f} ms an iteration", flush=True)
    for name in names:
        medians = {phase: statistics.median(x) for phase, x in spent[name].items()}
        yield name, group, calls[name][0], whole, medians


def prepared(recipe: Recipe, horizon: int) -> tuple[int, dict[str, Callable[[], object]]]:
    """The steps of a synthetic batch, and the phases of the recipe's arithmetic on it."""
    recipe = recipe.at(0)
    with patch.multiple(dry, GROUPS=Settings().prompts, TRAJECTORIES=1):
        batch = dry.collected(recipe, 0, horizon)
    raw = batch.with_({"reward": batch["score"]})
    weighed = [weigh(o, batch) for o in recipe.objectives]
    pairs = list(zip(recipe.objectives, weighed, strict=True))
    return len(batch), {
        "shape": partial(shape, recipe, raw),
        "keep": lambda: recipe.sampling.thin(recipe.sampling.keep(batch)),
        "credit": partial(credit, recipe, batch),
        "weigh": lambda: [weigh(o, batch) for o in recipe.objectives],
        "probe": lambda: [alive(o, _real(w)) for o, w in pairs],
        "loss": lambda: [dry.gradients(o, batch) for o in recipe.objectives],
    }


def _real(batch: Batch) -> Batch:
    """The batch as a run has it: `logp_old` is `logp` of the only visit, and not there before."""
    columns = {k: x for k, x in batch.columns.items() if k != "logp_old"}
    return Batch(columns, batch.ids, batch.tables, batch.inputs)


def show(rows: list[tuple[str, int, int, float, dict[str, float]]]) -> None:
    """A line per recipe, the dearest first; milliseconds, and the share of an iteration."""
    heads = ("group", "steps", "iteration", *PHASES, "all")
    print(f"{'recipe':24}" + "".join(f"{h:>10}" for h in heads) + f"{'share':>9}")
    shares = {row[0]: 100 * total(row[4]) / row[3] for row in rows}
    for name, group, steps, whole, spent in sorted(rows, key=lambda r: -shares[r[0]]):
        times = [whole, *(spent[p] for p in PHASES), total(spent)]
        cells = f"{group:10}{steps:10}" + "".join(f"{1e3 * t:10.1f}" for t in times)
        print(f"{name:24}{cells}{shares[name]:8.2f}%")
    over = [name for name, share in shares.items() if share > LIMIT]
    print(f"above {LIMIT:g} %: {', '.join(over) or 'none'}")


def total(spent: dict[str, float]) -> float:
    """All phases; weights are part of the loss's call as well, and are counted there only."""
    return sum(seconds for phase, seconds in spent.items() if phase != "weigh")


if __name__ == "__main__":
    main()
