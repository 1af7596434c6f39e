"""`compare`: several methods on one task, under equal budgets and several seeds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anypo.api import contest
from anypo.api.contest import Budget, Contender, Given, Trial
from anypo.api.record import asked
from anypo.api.workers import LOG, Event, Tell, perform, run_all
from anypo.backends.load_task import load_task
from anypo.backends.policies import DEFAULTS, SMALL, load_policy
from anypo.core.errors import UsageError, nearest
from anypo.engine.settings import Settings
from anypo.engine.validate import validate

if TYPE_CHECKING:
    from anypo.report.comparison import Comparison

STEPS = 60
"""Iterations of the first method from which a budget without an amount is made."""

QUICK = frozenset({"tiny", *SMALL})
"""Policies so small that one thread is all that a run of theirs can use."""


@dataclass(frozen=True)
class Field:
    """What all runs have in common: how they are told to `train`, and what they are judged by.

    `objects` are a policy or a task that no text names, each a function of the seed.
    """

    common: dict[str, Any]
    settings: dict[str, Any]
    objects: dict[str, Any] = field(default_factory=dict)

    def made(self, seed: int) -> dict[str, Any]:
        """Policy and task of a seed, where they are objects."""
        return {k: f(seed) if callable(f) else f for k, f in self.objects.items()}

    def task(self, seed: int) -> Any:
        """The task, as a run under this seed has it."""
        if "task" in self.objects:
            return self.made(seed)["task"]
        c = self.common
        options = c["task_options"]
        return load_task(c["task"], seed=seed, dataset=c["dataset"], reward=c["reward"], **options)

    def policy(self, task: Any, seed: int) -> Any:
        """The policy, as a run under this seed begins with it."""
        if "policy" in self.objects:
            return self.made(seed)["policy"]
        c = self.common
        options = {k: c[k] for k in ("lora", "precision")}
        return load_policy(c["policy"], task=task, seed=seed, **options)


def compare(
    methods: Sequence[Given | Path] | Mapping[str, Given],
    policy: Any = "",
    task: Any = "",
    *,
    seeds: int | Iterable[int] = 5,
    budget: str = "",
    steps: int = STEPS,
    metric: str = "",
    level: float | None = None,
    tune: Mapping[str, Sequence[Any]] | None = None,
    tune_seeds: int = 2,
    jobs: int = 0,
    out: str | Path = "",
    reward: Any = "",
    dataset: str | Path = "",
    lora: int = 0,
    precision: str = "",
    task_options: Mapping[str, Any] | None = None,
    unequal: bool = False,
    command: str = "",
    tell: Tell = lambda trial, event: None,
    notice: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> Comparison:
    """Run methods side by side and say which is ahead, with intervals; or compare finished runs.

    Every method gets the same task, policy, seeds and settings, and may spend the same. A run that
    is finished is not repeated, one that was interrupted goes on, and one that fails is shown as
    failed without ending the others.

    Parameters
    ----------
    methods : names, name → name or `Recipe`, or `Contender`s; or folders of finished runs (or of a
        comparison), which are read and not run.
    policy, task, reward, dataset, lora, precision, task_options : as in `train`; an object is given
        as a function of the seed, and its runs are made in this process.
    seeds : how many, or which.
    budget : what each run may spend: `completions` (default), `tokens` (default in control, where
        they are steps) or `iterations`, with an amount (`5000 tokens`) or without: then it is what
        the first method asks for in `steps` iterations.
    metric : what is scored (default: held-out accuracy, return, or reward, as suits the task).
    level : the score whose cost is told (default: half way from the start to the best).
    tune : name of a setting, an argument or `recipe.PATH` → values. Each method tries every
        combination on `tune_seeds` seeds of their own, and runs with the one of the best mean
        score. Without it all run at their defaults.
    jobs : runs at a time (0 = one per core for small policies, else one).
    out : where everything is kept (default `runs/compare-METHODS-TASK`).
    unequal : compare finished runs although task, policy or budget differ.
    command : how the comparison was asked for, for its record.
    tell : called with a run and what happens to it. notice : with sentences for a person.
    settings : further fields of `Settings` (prompts, horizon, lr, …) for all runs.

    Raises `UsageError` for anything a user can mend, before the first run begins.
    """
    judged = {"metric": metric, "level": level, "command": command}
    from anypo.report.outcomes import METRICS

    if folders := _folders(methods):
        from anypo.api.found import found

        given = {"policy": policy, "task": task, "dataset": dataset, "tune": tune, **settings}
        for name in (name for name, value in given.items() if value):
            raise UsageError(f"{name} is that of the finished runs: leave it out, or name methods")
        return _written(found(folders, Path(out) if out else None, budget, unequal, **judged))
    members = contest.contenders(methods)
    chosen, tuned = contest.seeds(seeds), contest.tuning(tune or {}, members)
    shared = _field(policy, task, reward, dataset, lora, precision, task_options, settings)
    spend = _checked(members, tuned, shared, budget, steps, chosen[0])
    folder = Path(out or Path("runs") / _name(members, shared, chosen[0]))
    contest.claim(folder, _plan(members, shared, spend, tune or {}, tune_seeds))
    notice(f"everything is kept in {folder}; the same command goes on after an interruption")
    judged["metric"] = metric or METRICS.get(shared.task(chosen[0]).kind, "reward")
    how = _How(folder, shared, spend, jobs or _jobs(shared), tell, judged["metric"])
    best, trials = _tune(members, tuned, _others(chosen, tune_seeds), how)
    runs = [
        contest.trial(c, s, folder, spend, shared.settings, shared.common, best.get(c.label))
        for s in chosen
        for c in members
    ]
    failed = how.run(runs)
    return _written(_result(members, runs, failed, best, trials, how, judged))


def _folders(methods: Any) -> list[Path]:
    """The folders among what is to be compared; all of it has to be, or none."""
    if isinstance(methods, Mapping):
        return []
    paths = [Path(m) for m in methods if isinstance(m, (str, Path)) and is_folder(m)]
    if paths and len(paths) < len(list(methods)):
        raise UsageError("methods are run and folders are read: name either, not both")
    return paths


def is_folder(name: str | Path) -> bool:
    """Whether a word names a folder of runs; `UsageError` for a path that is not there."""
    path = Path(name)
    if isinstance(name, Path) or os.sep in name:
        if not path.is_dir():
            raise UsageError(f"{name} is no folder: name folders of finished runs, or methods")
        return True
    return any((path / file).is_file() for file in ("anypo.json", contest.PLAN))


def _field(
    policy: Any,
    task: Any,
    reward: Any,
    dataset: Any,
    lora: int,
    precision: str,
    options: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> Field:
    known = [f.name for f in fields(Settings) if f.name not in contest.TAKEN]
    for name in settings:
        if name not in known:
            why = "is the comparison's own" if name in contest.TAKEN else "is no setting"
            raise UsageError(f"{name} {why}{nearest(name, known)}")
    objects = {k: x for k, x in (("policy", policy), ("task", task)) if not isinstance(x, str)}
    if "policy" in objects and not callable(policy):
        raise UsageError("every run needs a policy of its own: give a function of the seed")
    named = asked("" if "task" in objects else task, dataset, reward, options or {})
    if not named:
        raise UsageError("give the reward as text, FILE.py:FUNCTION, so that each run can load it")
    common = {"policy": "" if "policy" in objects else policy, "lora": lora, "precision": precision}
    return Field({**common, **named}, dict(settings), objects)


def _checked(
    members: Sequence[Contender],
    tuned: Mapping[str, Sequence[contest.Tried]],
    shared: Field,
    budget: str,
    steps: int,
    seed: int,
) -> Budget:
    """The budget, when every contender fits task and policy under each of its trials."""
    settings = Settings(**{**shared.settings, "steps": steps, "seed": seed})
    task = shared.task(seed)
    policy = shared.policy(task, seed)
    spend = contest.budget(budget, members[0].recipe, task, settings)
    for c in members:
        for tried in tuned.get(c.label, [{}]):
            made, _ = contest.applied(c, tried)
            run = contest.trial(c, seed, Path(), spend, shared.settings, shared.common, tried)
            try:
                validate(made.recipe, task, policy, Settings(**run.settings))
            except UsageError as error:
                said = f" with {contest.written(tried)}" if tried else ""
                raise UsageError(f"{c.label}{said}: {error}") from None
    return spend


def _name(members: Sequence[Contender], shared: Field, seed: int) -> str:
    names = "-".join(c.label for c in members)
    return contest.slug(f"compare-{names}-{shared.task(seed).name}")[:120]


def _plan(
    members: Sequence[Contender], shared: Field, spend: Budget, tune: Any, tune_seeds: int
) -> dict[str, Any]:
    """What makes a comparison this one: `compare.json`."""
    from anypo.core.dump import dump

    recipes = {c.label: {"method": c.method, "recipe": dump(c.recipe)} for c in members}
    tuning = {"values": {k: list(v) for k, v in tune.items()}, "seeds": tune_seeds if tune else 0}
    plain = {"unit": spend.unit, "amount": spend.amount}
    common = {**shared.common, "settings": shared.settings, "objects": sorted(shared.objects)}
    return {"all runs": common, "contenders": recipes, "tuning": tuning, "budget": plain}


def _jobs(shared: Field) -> int:
    """As many runs at a time as there are cores for small policies, which gain nothing by more."""
    name = shared.common["policy"] or DEFAULTS.get(getattr(shared.task(0), "kind", ""), "")
    return (os.cpu_count() or 1) if name in QUICK else 1


def _others(chosen: Sequence[int], count: int) -> list[int]:
    """Seeds for tuning: none of those that are reported."""
    first = contest.FIRST_TUNING_SEED
    return [s for s in range(first, first + count + len(chosen)) if s not in chosen][:count]


# ── running ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _How:
    """Where and how runs are made."""

    folder: Path
    shared: Field
    spend: Budget
    jobs: int
    tell: Tell
    metric: str

    def run(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Make the runs that are not finished; folder → reason of those that failed."""
        from anypo.report.outcomes import finished

        failed: dict[str, str] = {}

        def told(trial: Trial, event: Event) -> None:
            if "failed" in event:
                failed[trial.out] = event["failed"]
            self.tell(trial, event)

        left = []
        for trial in trials:
            over = finished(Path(trial.out))
            self.tell(trial, {"waiting": True} if not over else {"done": True, "before": True})
            left += [] if over else [trial]
        if self.shared.objects:
            for trial in left:
                told(trial, {"begin": True})
                hear = lambda event, t=trial: told(t, event)  # noqa: E731
                told(trial, perform(trial.as_dict(), hear, self.shared.made))
        else:
            threads = max((os.cpu_count() or 1) // self.jobs, 1)
            run_all(left, self.jobs, threads, self.folder / LOG, told)
        return failed


def _tune(
    members: Sequence[Contender],
    tuned: Mapping[str, Sequence[contest.Tried]],
    seeds: Sequence[int],
    how: _How,
) -> tuple[dict[str, contest.Tried], list[dict[str, Any]]]:
    """Each contender's best values by the mean score of its tuning seeds, and every trial."""
    from anypo.report.outcomes import direction, outcome

    if not tuned:
        return {}, []
    shared, plan = how.shared, []
    for c, s in ((c, s) for s in seeds for c in members):
        for tried in tuned[c.label]:
            place = f"tuning/{contest.slug(contest.written(tried).replace(', ', '-'))}/seed-{s}"
            made = (c, s, how.folder, how.spend, shared.settings, shared.common, tried, place)
            plan.append((c.label, tried, contest.trial(*made)))
    failed = how.run([t for _, _, t in plan])
    trials: list[dict[str, Any]] = []
    for (label, values), rows in groupby(
        sorted(plan, key=lambda p: (p[0], contest.written(p[1]))),
        key=lambda p: (p[0], contest.written(p[1])),
    ):
        mine = list(rows)
        scores = [outcome(Path(t.out), how.metric).score for *_, t in mine if t.out not in failed]
        mean = sum(scores) / len(scores) if len(scores) == len(mine) else None
        trials.append({"label": label, "values": values, "tried": mine[0][1], "score": mean})
    better = direction(how.metric)
    best: dict[str, contest.Tried] = {}
    for c in members:
        known = [t for t in trials if t["label"] == c.label and t["score"] is not None]
        if not known:
            raise UsageError(f"every trial of {c.label} failed; see {how.folder / LOG}")
        order = [contest.written(t) for t in tuned[c.label]]
        top = max(known, key=lambda t: (better * t["score"], -order.index(t["values"])))
        best[c.label], top["chosen"] = top["tried"], True
    return best, trials


def _result(
    members: Sequence[Contender],
    runs: Sequence[Trial],
    failed: Mapping[str, str],
    best: Mapping[str, contest.Tried],
    trials: Sequence[Mapping[str, Any]],
    how: _How,
    judged: Mapping[str, Any],
) -> Comparison:
    """The comparison of runs that were made."""
    from anypo.report.comparison import compared, standing
    from anypo.report.outcomes import outcome

    metric, standings = judged["metric"], []
    for c in members:
        mine = [t for t in runs if t.label == c.label]
        ended = [outcome(Path(t.out), metric, c.label) for t in mine if t.out not in failed]
        broken = [(t.seed, failed[t.out]) for t in mine if t.out in failed]
        count = len([t for t in trials if t["label"] == c.label])
        tuned = f"{contest.written(best[c.label])}, best of {count}" if c.label in best else ""
        standings.append(standing(c.label, ended, metric, broken, tuned))
    kept = {"out": how.folder, "trials": tuple(trials), "command": judged["command"]}
    return compared(standings, metric, how.spend.unit, how.spend.amount, judged["level"], **kept)


def _written(comparison: Comparison) -> Comparison:
    """The comparison, with its page and its numbers on disk."""
    from anypo.report.compare import as_dict, write_comparison

    write_comparison(comparison)
    file = comparison.out / "comparison.json"
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(as_dict(comparison), indent=1, allow_nan=False))
    os.replace(partial, file)
    return comparison
