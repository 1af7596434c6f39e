"""`anypo evaluate`: how good a policy is on a task's questions, episodes or points."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from anypo.cli.options import (
    Config,
    Dataset,
    Flag,
    Judge,
    Named,
    Precision,
    gather,
    parse,
    said,
)

POLICY = said(
    "a policy by name, a checkpoint folder, or a run folder for its last checkpoint; "
    "--policy POLICY says the same",
    "[POLICY]",
    "smollm2-135m",
)
HARNESS = said("tasks of lm-eval instead, with commas between their names", "TASK[,TASK]")
FOLDER = said("a folder with further tasks of lm-eval, in YAML", "FOLDER")


@dataclass(frozen=True)
class Evaluate:
    """Greedy accuracy on seen and held-out questions; with --k also pass@k and majority votes."""

    policy: Annotated[tyro.conf.Positional[str], POLICY] = ""
    task: Named = ""
    dataset: Dataset = ""
    reward: Judge = ""
    n: int = 100
    """most questions of each side, or episodes, or points"""
    k: int = 0
    """also sample: pass@1, 2, 4, … k, and majority votes of as many answers"""
    samples: int = 0
    """answers sampled for each question, at least k (0: k)"""
    temperature: float = 1.0
    """of what is sampled"""
    horizon: int = 0
    """most tokens of an answer (0: the run's, else the task's)"""
    seed: int = 0
    """of the split into seen and held-out questions, and of samples (default: the run's, else 0)"""
    against: Annotated[str, said("a second policy, compared question by question", "POLICY")] = ""
    save: Annotated[str, said("every question with its answers and scores", "FILE.parquet")] = ""
    lm_eval: Annotated[str, HARNESS] = ""
    lm_eval_include: Annotated[str, FOLDER] = ""
    lm_eval_chat: Flag = False
    """have its contexts go through the policy's chat template"""
    precision: Precision = ""
    config: Config = ""
    json: Flag = False
    """print one JSON object instead of a table"""


def run(words: list[str]) -> int:
    """Print one column per side."""
    given = gather(Evaluate, words)
    options = parse(Evaluate, given, "evaluate", free=("task.",))
    if any(name.startswith("lm_eval") for name in given):
        from anypo.cli.harness import harness

        return harness(options, given)
    from anypo import api
    from anypo.cli.scores import plain, print_pairs, print_scores
    from anypo.cli.screen import console, print_json
    from anypo.cli.train import inner
    from anypo.core.errors import UsageError

    if options.save and not options.save.endswith(".parquet"):
        raise UsageError(f"--save {options.save}: name a file that ends in .parquet")
    names = "n k samples temperature precision".split()
    asked: dict[str, Any] = {name: getattr(options, name) for name in names}
    what = {"dataset": options.dataset, "reward": options.reward, "horizon": options.horizon}
    seed = options.seed if "seed" in given else None
    with Bar(console(sys.stderr)) as bar:
        asked |= {"tell": bar.tell}
        about = {**what, "seed": seed, "task_options": inner(given, "task.")}
        scores = [api.evaluate(options.policy, options.task, **about, **asked)]
        if options.against:
            about = {name: scores[0].settings[name] for name in ("seed", "horizon")}
            scores += [api.evaluate(options.against, scores[0].task, **about, **asked)]
    if options.save:
        scores[0].save(options.save)
    if options.json:
        print_json(plain(scores))
    elif options.against:
        print_pairs(console(sys.stdout), *scores)
    else:
        print_scores(console(sys.stdout), scores[0])
    return 0


class Bar:
    """A progress bar on a terminal, silence elsewhere."""

    def __init__(self, screen: Any) -> None:
        from rich import progress as rich

        name = rich.TextColumn("{task.description}", markup=False)
        columns = (name, rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
        hidden = not screen.is_terminal
        self.progress = rich.Progress(*columns, console=screen, transient=True, disable=hidden)
        self.bars: dict[str, Any] = {}

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def tell(self, what: str, done: int, total: int) -> None:
        """Move the bar of what is being measured."""
        if what not in self.bars:
            self.bars[what] = self.progress.add_task(what, total=total)
        self.progress.update(self.bars[what], completed=done)
