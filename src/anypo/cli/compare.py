"""`anypo compare`: methods side by side, under equal budgets and several seeds."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anypo.cli.options import (
    Config,
    Dataset,
    Flag,
    Judge,
    Named,
    Precision,
    convert,
    gather,
    guess,
    members,
    parse,
    said,
)
from anypo.cli.train import POLICY, inner

if TYPE_CHECKING:
    from anypo.api.contest import Contender

METHODS = said(
    "at least two: names (see anypo methods), with arguments as grpo:beta=0,group=4; or folders of "
    "finished runs, or of a comparison, which are read and not run",
    "METHOD METHOD…",
)
SEEDS = said("how many, or which: 0,1,2", "N", "5, which are 0 to 4")
BUDGET = said(
    "what each run may spend: completions, tokens (in control: steps) or iterations, with an "
    "amount before it, such as '20000 tokens', or without",
    "[AMOUNT] UNIT",
    "completions, or tokens in control",
)
TUNE = said(
    "a setting, an argument or recipe.PATH with the values that every method tries on seeds of "
    "their own; several with a semicolon: 'lr=1e-5,3e-5;clip=0.1,0.2'; LABEL.NAME for one method",
    "NAME=A,B,…",
    "no tuning: all run at their defaults",
)
METRIC = said(
    "what is scored",
    "NAME",
    "held_out/accuracy, held_out/nll for demonstrations, rollout/ep_rew_mean in control, reward",
)
LEVEL = said("the score whose cost is told", "X", "half way from the start to the best")
JOBS = said("runs at a time", "N", "one per core for small policies, else 1")


@dataclass(frozen=True)
class Compare:
    """Run methods under equal budgets and say which is ahead, or go on where this stopped."""

    methods: Annotated[tyro.conf.Positional[tuple[str, ...]], METHODS]
    policy: Annotated[str, POLICY] = ""
    task: Named = ""
    dataset: Dataset = ""
    reward: Judge = ""
    seeds: Annotated[str, SEEDS] = "5"
    budget: Annotated[str, BUDGET] = ""
    steps: int = 60
    """iterations of the first method from which a budget without an amount is made"""
    metric: Annotated[str, METRIC] = ""
    level: Annotated[str, LEVEL] = ""
    tune: Annotated[str, TUNE] = ""
    tune_seeds: int = 2
    """seeds of each tuning trial, none of them among those that are reported"""
    jobs: Annotated[int, JOBS] = 0
    out: Annotated[
        str, said("where everything is kept, and goes on", "FOLDER", "runs/compare-METHODS-TASK")
    ] = ""
    unequal: Flag = False
    """compare finished runs although task, policy or budget differ"""
    prompts: int = 16
    """prompts, environment streams or conditions per iteration"""
    horizon: int = 0
    """most completion tokens, or steps of a fragment (0: the task's own)"""
    temperature: float = 1.0
    """of the sampled and scored distribution"""
    lr: float = 0.0
    """learning rate (0: the policy's own)"""
    eval_every: Annotated[
        int, said("iterations between measurements", "N", "about ten along a run")
    ] = 0
    eval_size: int = 100
    """most questions of a measurement"""
    save_every: str = "300s"
    """time (300s) or iterations (20) between checkpoints"""
    lora: Annotated[int, tyro.conf.arg(help="rank of low-rank adapters; 0 trains all weights")] = 0
    precision: Precision = ""
    config: Config = ""
    json: Flag = False
    """print one JSON object at the end instead of tables"""


SETTINGS = "prompts horizon temperature lr eval_every eval_size save_every".split()
FREE = ("task.",)


def run(words: list[str]) -> int:
    """Compare, then print who is ahead, the scores and what they cost; 1 where a run failed."""
    given = gather(Compare, words)
    if given.get("methods", "").startswith("["):  # a list, out of a YAML file
        given["methods"] = "\n".join(map(str, guess(given["methods"])))
    options = parse(Compare, given, "compare", FREE)
    from anypo import api
    from anypo.cli.board import Board, show
    from anypo.cli.screen import console, print_json
    from anypo.report.compare import as_dict

    screen = console(sys.stderr)
    settings = {k: getattr(options, k) for k in SETTINGS if k in given}
    with Board(screen, options.metric) as board:
        members_ = [_member(text, board.notice) for text in options.methods]
        done = api.compare(
            members_,
            options.policy,
            options.task,
            seeds=_seeds(options.seeds),
            budget=options.budget,
            steps=options.steps,
            metric=options.metric,
            level=convert(options.level, float, "--level") if options.level else None,
            tune=_tune(options.tune),
            tune_seeds=options.tune_seeds,
            jobs=options.jobs,
            out=options.out,
            reward=options.reward,
            dataset=options.dataset,
            lora=options.lora,
            precision=options.precision,
            task_options=inner(given, "task."),
            unequal=options.unequal,
            command=shlex.join(["anypo", "compare", *words]),
            tell=board.tell,
            notice=board.notice,
            **settings,
        )
    if options.json:
        print_json(as_dict(done))
    else:
        show(console(sys.stdout), done)
    return 1 if any(s.failed for s in done.standings) else 0


def _member(text: str, notice: Any) -> Contender | Path:
    """A folder, or a method with its arguments: `grpo:beta=0,recipe.surrogate.dual=3`."""
    from anypo import api
    from anypo.api.compare import is_folder
    from anypo.api.contest import Contender
    from anypo.cli import arguments
    from anypo.core.errors import UsageError

    if is_folder(text):
        return Path(text)
    name, colon, rest = text.partition(":")
    method, texts = api.find(name), _assigned(rest, text)
    own = method.info.parameters
    for word in texts:
        if word not in own and not word.startswith(arguments.PREFIX):
            also = arguments.own_options(method.info)
            raise UsageError(f"{name} has no argument {word!r}{also}")
    if colon and not texts:
        raise UsageError(f"{text!r}: write {name}, or {name}:ARGUMENT=VALUE")
    chosen = arguments.choose(method, texts)
    for remark in arguments.effects(chosen):
        notice(f"note: {remark}")
    fields = {p: arguments.typed(chosen.recipe, p, t) for p, t in chosen.overrides.items()}
    return Contender(f"{method.info.name}{colon}{rest}", method.info.name, chosen.arguments, fields)


def _assigned(text: str, whole: str) -> dict[str, str]:
    from anypo.core.errors import UsageError

    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{whole!r}: write METHOD:ARGUMENT=VALUE,ARGUMENT=VALUE")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def _seeds(text: str) -> int | list[int]:
    found = [convert(word, int, "--seeds") for word in members(text)]
    return found[0] if len(found) == 1 and "," not in text else found


def _tune(text: str) -> Mapping[str, list[Any]]:
    """`lr=1e-5,3e-5;clip=0.1` as names with their values."""
    from anypo.core.errors import UsageError

    found: dict[str, list[Any]] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, equals, values = part.partition("=")
        if not (name and equals and members(values)):
            raise UsageError(f"--tune {part!r}: write NAME=A,B, and a semicolon between several")
        found[name.strip().replace("-", "_")] = [guess(v) for v in members(values)]
    return found
