"""The public calls: `methods`, `recipe`, `train`, `evaluate`."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import anypo.core
import anypo.pieces
import anypo.recipes
from anypo.backends.load_task import load_task
from anypo.backends.local import Local
from anypo.backends.policies import load_policy
from anypo.core import discover
from anypo.core.dump import dump, load
from anypo.core.errors import UsageError, nearest
from anypo.core.method import Method, MethodInfo
from anypo.core.recipe import Recipe
from anypo.engine import checkpoint, loop
from anypo.engine.log import read
from anypo.engine.metrics import interval
from anypo.engine.settings import Settings
from anypo.engine.state import State, origin
from anypo.engine.validate import validate

Watch = Callable[[dict[str, Any]], None]


def methods() -> list[MethodInfo]:
    """Every method that the package knows, by name."""
    return [m.info for m in discover.methods(anypo.recipes).values()]


def find(name: str) -> Method:
    """The method of a name, slug or alias.

    A word that several methods go by resolves to one only where it is that one's slug. Raises
    `UsageError` with the candidates for such a word, and with the nearest names for an unknown one.
    """
    known = discover.methods(anypo.recipes)
    word = _word(name)
    if word in known:
        return known[word]
    called = [m for m in known.values() if word in map(_word, m.info.aliases)]
    rivals = namesakes(name)
    if len(called) == 1 and (not rivals or word in [_word(n.slug) for n in rivals]):
        return called[0]
    rivals = rivals or [Namesake(m.info.slug, m.info.title) for m in called]
    if not rivals:
        raise UsageError(f"unknown recipe {name!r}{nearest(word, known)} (see: anypo methods)")
    raise UsageError(_choose(name, rivals))


@dataclass(frozen=True)
class Namesake:
    """One of the methods that go by the same acronym; `here`: whether this package has it."""

    slug: str
    line: str
    here: bool = True


ACRONYMS = Path(__file__).with_name("acronyms.tsv")


def namesakes(word: str) -> list[Namesake]:
    """The methods that go by an ambiguous acronym, those first that are here; none for others."""
    known = discover.methods(anypo.recipes).values()
    here = {_word(n) for m in known for n in (m.info.name, *m.info.aliases)}
    rows = [line.split("\t") for line in ACRONYMS.read_text("utf-8").splitlines()[1:]]
    plain = _letters(word)
    found = [Namesake(s, line, _word(s) in here) for a, s, line in rows if _letters(a) == plain]
    return sorted(found, key=lambda n: not n.here)


def _word(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _letters(word: str) -> str:
    """S-GRPO, s_grpo and SGRPO are one acronym."""
    return "".join(c for c in word.lower() if c.isalnum())


def _choose(name: str, rivals: list[Namesake]) -> str:
    """A sentence and one line for each candidate."""
    width = max(len(n.slug) for n in rivals)
    lines = [f"  {n.slug:{width}}  {n.line}{'' if n.here else ' (not here yet)'}" for n in rivals]
    return "\n".join([f"several methods are called {name!r}; say which by its slug:", *lines])


def recipe(name: str, **arguments: Any) -> Recipe:
    """The recipe of a method, `anypo.recipe("gspo", clip_low=1e-3)`."""
    return find(name)(**arguments)


def load_recipe(data: Mapping[str, Any]) -> Recipe:
    """The recipe that a run's `anypo.json` describes."""
    return load(data, discover.parts(anypo.core, anypo.pieces))


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
    watch: Watch = lambda row: None,
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
    watch : called with the row of every finished iteration; notice : with sentences for a person.
    settings : fields of `Settings` (steps, seed, prompts, horizon, lr, …).

    Raises `UsageError` for anything a user can mend.
    """
    made = _settings(settings)
    name = name or (recipe if isinstance(recipe, str) else "recipe")
    chosen = find(recipe)() if isinstance(recipe, str) else recipe
    options = dict(task_options or {})
    if isinstance(task, str):
        task = load_task(task, seed=made.seed, dataset=str(dataset), reward=reward, **options)
    if isinstance(policy, str):
        policy = load_policy(policy, task=task, lora=lora, precision=precision, seed=made.seed)
    validate(chosen, task, policy, made)
    folder = Path(out or Path("runs") / _slug(f"{name}-{policy.name}-{task.name}"))
    facts = {**describe(chosen, policy, task, made, name), "given": dict(arguments or {})}
    claim(folder, facts)
    notice(f"{policy.name} on {task.name}; everything is kept in {folder}")
    _say_references(chosen, policy, notice)
    backend = Local(task)
    if task.kind == "language" and not (folder / "before.json").exists():
        notice("scoring the policy before training")
    before = _before(folder, chosen, policy, made, backend)
    for newest in checkpoint.found(folder)[-1:]:
        notice(f"going on from {newest.name}")
    state = loop.train(chosen, task, policy, backend, made, folder, watch)
    if task.kind == "language":
        notice("scoring the policy after training")
    after = backend.evaluate(state, seen=True)
    scores = {"before": before, "after": after}
    (folder / "scores.json").write_text(json.dumps(scores, indent=1))
    return Run(folder, policy, scores)


def _settings(given: Mapping[str, Any]) -> Settings:
    names = [f.name for f in fields(Settings)]
    for name in given:
        if name not in names:
            raise UsageError(f"unknown setting {name!r}{nearest(name, names)}")
    return Settings(**given)


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)


def describe(
    recipe: Recipe, policy: Any, task: Any, settings: Settings, name: str = "recipe"
) -> dict[str, Any]:
    """What makes a run this run, and what it ran on: the content of `anypo.json`."""
    return {
        "method": name,
        "recipe": dump(recipe),
        "policy": policy.settings(),
        "task": getattr(task, "settings", lambda: {"name": task.name})(),
        "settings": asdict(settings),
        "versions": {"python": platform.python_version(), **_versions()},
        "hardware": {
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        },
        "command": " ".join(["anypo", *sys.argv[1:]]),
    }


LIBRARIES = "anypo torch numpy safetensors transformers peft reasoning-gym gymnasium".split()


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


IDENTITY = ("settings", "recipe", "policy", "task")
FREE = frozenset({"steps", "save_every", "eval_size", "token_budget", "patience", "record_every"})
"""Settings that may change when a run goes on: they change no number of what is done already."""


def claim(out: Path, facts: dict[str, Any]) -> None:
    """Take a folder for a run; `UsageError` when it holds another run, or other files."""
    file = out / "anypo.json"
    if file.exists():
        there = json.loads(file.read_text())
        here = json.loads(json.dumps(facts))
        for key in IDENTITY:
            a, b = there.get(key), here[key]
            if key == "settings":
                a, b = ({k: v for k, v in x.items() if k not in FREE} for x in (a, b))
            if a != b:
                raise UsageError(
                    f"{out} holds another run ({_difference(a, b, key)}). "
                    "Choose another --out, or remove that folder"
                )
    elif out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty and holds no run: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(facts, indent=1))
    os.replace(partial, file)


def _difference(a: Any, b: Any, path: str = "") -> str:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return _difference(a.get(key), b.get(key), f"{path}.{key}".lstrip("."))
    return f"{path}: {a!r} there, {b!r} here"


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


@dataclass(frozen=True)
class Scores:
    """Greedy accuracy on a side of a task, with its 95 % Wilson interval."""

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """Share of exact answers."""
        return self.correct / self.total if self.total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return interval(self.correct, self.total)


def evaluate(
    policy: Any = "",
    task: Any = "",
    n: int = 100,
    *,
    reward: Any = "",
    dataset: str | Path = "",
    seed: int = 0,
    precision: str = "",
    task_options: Mapping[str, Any] | None = None,
) -> dict[str, Scores]:
    """Greedy exact-answer accuracy of a policy on seen and held-out questions of a task."""
    if isinstance(task, str):
        options = dict(task_options or {})
        task = load_task(task, seed=seed, dataset=str(dataset), reward=reward, **options)
    if task.kind != "language":
        raise UsageError(f"evaluate scores language tasks; {task.name!r} is of kind {task.kind}")
    if isinstance(policy, str):
        policy = load_policy(policy, task=task, lora=0, precision=precision, seed=seed)
    policy.publish()
    state = State.start(Recipe(), policy, Settings(eval_size=n, seed=seed))
    out = Local(task).evaluate(state, seen=True)
    sides = [s for s in ("seen", "held_out") if f"{s}/total" in out]
    return {s: Scores(out[f"{s}/correct"], out[f"{s}/total"]) for s in sides}
