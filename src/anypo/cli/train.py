"""`anypo train`: improve a policy on a task, watch it, and see what came of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from anypo.cli.options import (
    Config,
    Dataset,
    Flag,
    Judge,
    Named,
    Precision,
    documented,
    gather,
    guess,
    parse,
    said,
)
from anypo.engine.settings import Settings


def _settings() -> type[Any]:
    """The run's settings, whose docstring tells tyro what each is for."""
    helps = documented(Settings)
    named = [
        (f.name, Annotated[type(f.default), tyro.conf.arg(help=helps[f.name])], f.default)
        for f in fields(Settings)
    ]
    made = make_dataclass("settings", named, frozen=True)
    made.__doc__ = "How long, how much, how fast."
    return made


if TYPE_CHECKING:
    RunSettings = Settings
else:
    RunSettings = _settings()

RECIPE = said(
    "a method's name, see anypo methods; anypo train RECIPE --help lists its own arguments, and "
    "--recipe.PATH VALUE sets any field of its recipe, see anypo show RECIPE",
    "[RECIPE]",
    "grpo",
)
POLICY = said(
    "tiny, smollm2-135m, a Hugging Face model by name or folder, categorical, flow",
    "NAME",
    "smollm2-135m, or what suits the task's kind",
)


@dataclass(frozen=True)
class Train:
    """Improve a policy on a task, or go on where the same command stopped."""

    recipe: Annotated[tyro.conf.Positional[str], RECIPE] = "grpo"
    policy: Annotated[str, POLICY] = ""
    task: Named = ""
    dataset: Dataset = ""
    reward: Judge = ""
    out: Annotated[
        str,
        said("where the run is kept, and goes on", "FOLDER", "runs/RECIPE-POLICY-TASK"),
    ] = ""
    lora: Annotated[int, tyro.conf.arg(help="rank of low-rank adapters; 0 trains all weights")] = 0
    precision: Precision = ""
    report_to: Annotated[
        str,
        said("trackers, joined by commas: tensorboard, wandb, mlflow, trackio", "NAMES", "none"),
    ] = ""
    profile: Flag = False
    """say where the time goes, and how fast it could go: the floor of the arithmetic"""
    config: Config = ""
    json: Flag = False
    """print one JSON object at the end instead of tables"""
    settings: tyro.conf.OmitArgPrefixes[RunSettings] = field(default_factory=RunSettings)


NEWCOMER = (
    "no recipe named: grpo with beta=0, that is without a reference model, as TRL has it "
    "(the paper's beta=0.04 would score every completion once more; --beta 0.04 sets it)"
)


def run(words: list[str]) -> int:
    """Train, then print the scores before and after."""
    given = gather(Train, words)
    if "help" in given and "recipe" not in given:
        parse(Train, given, "train")
    from anypo.cli import arguments, progress, results
    from anypo.cli.screen import console
    from anypo.report.text import visible

    chosen, options, remarks = choose(given)
    screen = console(sys.stderr)
    for text in [*remarks, *arguments.effects(chosen)]:
        screen.print(f"note: {visible(text)}", soft_wrap=not screen.is_terminal)
    from anypo import api

    with progress.Progress(screen, chosen.method.info.name, options.settings.steps) as shown:
        done = api.train(
            chosen.recipe,
            options.policy,
            options.task,
            out=options.out,
            reward=options.reward,
            dataset=options.dataset,
            lora=options.lora,
            precision=options.precision,
            task_options=inner(given, "task."),
            name=chosen.method.info.name,
            arguments=dict(chosen.texts),
            callbacks=[shown],
            report_to=options.report_to,
            profile=options.profile,
            notice=shown.notice,
            **vars(options.settings),
        )
        shown.notice("writing the report")
        done.report  # noqa: B018
    results.print_run(done, as_json=options.json)
    return 0


def choose(given: Mapping[str, str]) -> tuple[Any, Any, list[str]]:
    """The method with its arguments, the other options, and what a person should know of them."""
    from anypo import api
    from anypo.cli import arguments

    method = api.find(given.get("recipe", "grpo"))
    cls = arguments.with_arguments(Train, method.info)
    also = arguments.own_options(method.info)
    options = parse(cls, given, f"train {method.info.name}", ("recipe.", "task."), also)
    if "recipe" in given or "beta" in given:
        return arguments.choose(method, given), options, []
    return arguments.choose(method, {"beta": "0", **given}), options, [NEWCOMER]


def inner(given: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Options with a prefix, without it, as the values that they look like."""
    return {k.removeprefix(prefix): guess(v) for k, v in given.items() if k.startswith(prefix)}
