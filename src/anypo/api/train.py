"""`train`: improve a policy on a task by a recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from anypo.api.names import find
from anypo.api.record import asked, claim, describe
from anypo.backends import trackers
from anypo.backends.load_task import load_task
from anypo.backends.local import MEASURED, Local
from anypo.backends.policies import load_policy
from anypo.backends.profile import Profiling, read_profile
from anypo.core.errors import UsageError, nearest
from anypo.core.recipe import Recipe
from anypo.doctor import Live
from anypo.engine import checkpoint, loop
from anypo.engine.callbacks import Callback, Callbacks
from anypo.engine.log import read
from anypo.engine.profile import Profile, nobody
from anypo.engine.settings import Settings
from anypo.engine.state import State, origin
from anypo.engine.validate import validate
from anypo.rollout.dataset import fitted


@dataclass
class Run:
    """A finished run: its folder, its policy, its metrics, its scores before and after."""

    out: Path
    policy: Any
    scores: dict[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One row per iteration, as in `metrics.jsonl`."""
        return read(self.out / "metrics.jsonl")

    @property
    def profile(self) -> Profile | None:
        """Where the time went, if the run was made with `profile=True`."""
        return read_profile(self.out)

    @property
    def report(self) -> Path:
        """The report page, written on first use."""
        from anypo.report.report import write_report

        return write_report(self.out)


def train(
    recipe: Recipe | str = "grpo",
    policy: Any = "",
    task: Any = "",
    *,
    out: str | Path = "",
    reward: Any = "",
    dataset: str | Path = "",
    lora: int = 0,
    precision: str = "",
    task_options: Mapping[str, Any] | None = None,
    name: str = "",
    arguments: Mapping[str, Any] | None = None,
    callbacks: Iterable[Callback] = (),
    report_to: str | Iterable[str] = (),
    profile: bool = False,
    notice: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> Run:
    """Improve a policy on a task by a recipe, and go on where an interrupted run stopped.

    Parameters
    ----------
    recipe : a `Recipe`, or a method's name.
    policy : `smollm2-135m`, `tiny`, a folder, a hub id, a control or generator policy, or an object
        (default: `smollm2-135m` for language, and what suits the task's kind otherwise).
    task : a task's name (`arithmetic`, `reasoning_gym:chain_sum`, `CartPole-v1`, …), or an object
        (default: `arithmetic`, unless a dataset is given).
    out : the run's folder (default `runs/RECIPE-POLICY-TASK`).
    reward, dataset : a reward function (or `file.py:function`) and a data file, instead of a task.
    lora : rank of low-rank adapters (0 = all weights). precision : of the policy's forward passes.
    name, arguments : of the method that made the recipe, for the run's record.
    callbacks : objects of `anypo.Callback`, called as the run goes.
    report_to : trackers that are told as well: `tensorboard`, `wandb`, `mlflow`, `trackio`.
    profile : say where the time goes, in the metrics and in `Run.profile`.
    notice : called with sentences for a person, the doctor's warnings among them.
    settings : fields of `Settings` (steps, seed, prompts, horizon, lr, …).

    Raises `UsageError` for anything a user can mend.
    """
    made = _settings(settings)
    name = name or (recipe if isinstance(recipe, str) else "recipe")
    chosen = find(recipe)() if isinstance(recipe, str) else recipe
    options = dict(task_options or {})
    named = asked(task, dataset, reward, options)
    if isinstance(task, str):
        task = load_task(task, seed=made.seed, dataset=str(dataset), reward=reward, **options)
    if isinstance(policy, str):
        policy = load_policy(policy, task=task, lora=lora, precision=precision, seed=made.seed)
    validate(chosen, task, policy, made)
    task, notes = fitted(task, policy)
    for note in notes:
        notice(note)
    folder = Path(out or Path("runs") / _slug(f"{name}-{policy.name}-{task.name}"))
    facts = {**describe(chosen, policy, task, made, name), "given": dict(arguments or {})}
    facts |= {"asked": named} if named else {}
    told = trackers.make(report_to, folder, folder.name, notice)
    claim(folder, facts)
    notice(f"{policy.name} on {task.name}; everything is kept in {folder}")
    _say_references(chosen, policy, notice)
    backend = Local(task)
    if task.kind in MEASURED and not (folder / "before.json").exists():
        notice("scoring the policy before training")
    before = _before(folder, chosen, policy, made, backend)
    for newest in checkpoint.found(folder)[-1:]:
        notice(f"going on from {newest.name}")
    callback = Callbacks([*callbacks, Live(notice), *told])
    callback.on_start({**facts, "out": str(folder)})
    profiling = Profiling(policy) if profile else None
    try:
        with profiling.kept(folder) if profiling else nullcontext():
            look = profiling or nobody
            state = loop.train(chosen, task, policy, backend, made, folder, callback, look)
    except BaseException as error:
        callback.on_error(error)
        raise
    if "reward_model" in state.heads:
        _keep_reward_model(state, folder, notice)
    if state.ended:
        notice(f"ended after {state.step} iterations: {state.ended}")
    if task.kind in MEASURED:
        notice("scoring the policy after training")
    after = backend.evaluate(state, seen=True)
    scores = {"before": before, "after": after}
    scores |= {"stopped": state.ended} if state.ended else {}
    (folder / "scores.json").write_text(json.dumps(scores, indent=1))
    callback.on_end(scores)
    return Run(folder, policy, scores)


def _keep_reward_model(state: State, out: Path, notice: Callable[[str], None]) -> None:
    """Write what a recipe on pairs has learned as a model that scores, beside the checkpoints."""
    from anypo.backends.classifier import FOLDER
    from anypo.backends.reward_model import save_reward_model

    save_reward_model(state.policy, state.heads["reward_model"], out / FOLDER)
    notice(f"the reward model is in {out / FOLDER}; --reward {out} scores answers by it")


def _settings(given: Mapping[str, Any]) -> Settings:
    names = [f.name for f in fields(Settings)]
    for name in given:
        if name not in names:
            raise UsageError(f"unknown setting {name!r}{nearest(name, names)}")
    return Settings(**given)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def _say_references(recipe: Recipe, policy: Any, notice: Callable[[str], None]) -> None:
    for name in sorted(recipe.references):
        size = sum(t.numel() * t.element_size() for t in (origin(policy) or {}).values())
        held = f"{size / 1e6:.0f} MB" if size else "no memory: the adapter is switched off"
        notice(f"reference {name!r}: {held}")


def _before(
    out: Path, recipe: Recipe, policy: Any, settings: Settings, backend: Local
) -> dict[str, Any]:
    """Scores of the untrained policy, kept so that a resumed run does not measure a trained one."""
    file = out / "before.json"
    if not file.exists():
        policy.publish()
        scores = backend.evaluate(State.start(recipe, policy, settings), seen=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(scores))
        os.replace(partial, file)
    return json.loads(file.read_text())
