"""`evaluate`: how good a policy is on a task."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anypo.api import given
from anypo.api.scores import Scores, Side
from anypo.backends.load_task import load_task
from anypo.backends.policies import load_policy, run_of
from anypo.core.errors import UsageError
from anypo.core.request import Request
from anypo.core.rng import key
from anypo.core.score import Score, reaches
from anypo.engine.measure import Measure, average, share
from anypo.math.answers import majority_at, pass_at
from anypo.rollout import generator, language
from anypo.rollout.episodes import episodes
from anypo.tasks.task import Problems

MOST_SAMPLES = 1000
TOGETHER = 256
"""Answers that are drawn together; between such lots progress is told."""

Tell = Callable[[str, int, int], None]
"""Told what is being measured, how much of it is done, and how much there is."""


def quiet(what: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class How:
    """How an evaluation is made: the options of `evaluate` that are neither policy nor task."""

    n: int = 100
    k: int = 0
    samples: int = 0
    temperature: float = 1.0
    horizon: int = 0
    seed: int = 0
    tell: Tell = quiet

    def __post_init__(self) -> None:
        for name in ("k", "samples", "horizon"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must be at least 0, not {getattr(self, name)}")
        if self.n < 1:
            raise UsageError(f"n must be at least 1, not {self.n}")
        if self.drawn > MOST_SAMPLES:
            raise UsageError(
                f"{self.drawn} samples per question are above {MOST_SAMPLES}: ask less"
            )
        if self.samples and self.samples < self.k:
            raise UsageError(f"k={self.k} wants at least that many samples, not {self.samples}")
        if self.drawn > 1 and self.temperature == 0:
            raise UsageError("at temperature 0 all samples are the greedy answer: give one above 0")
        if self.temperature < 0:
            raise UsageError(f"temperature must be at least 0, not {self.temperature}")

    @property
    def drawn(self) -> int:
        """Answers sampled for each question."""
        return self.samples or self.k

    @property
    def ks(self) -> list[int]:
        """1, 2, 4, … up to k, and k itself."""
        most = self.k or min(self.drawn, 1)
        return sorted({*(2**i for i in range(most.bit_length())), most} - {0})


def evaluate(
    policy: Any = "",
    task: Any = "",
    n: int = 100,
    k: int = 0,
    *,
    samples: int = 0,
    temperature: float = 1.0,
    horizon: int = 0,
    reward: Any = "",
    dataset: str | Path = "",
    seed: int | None = None,
    precision: str = "",
    task_options: Mapping[str, Any] | None = None,
    tell: Tell = quiet,
) -> Scores:
    """Measure a policy on a task, with 95 % intervals.

    Parameters
    ----------
    policy : a name, a folder (a run's is its last checkpoint), a finished `Run`, or an object.
    task : a name or an object; for a run without one, the task that it was trained on.
    n : most questions of each side, or episodes, or points.
    k : also sample answers: pass@1, 2, 4, … k, and majority votes of as many (0 = greedy alone).
    samples : answers for each question, at least k (0 = k). More make the estimates surer.
    temperature : of sampled answers or actions.
    horizon : most tokens of an answer (0 = the run's, else the task's).
    reward, dataset : a reward function and a data file, instead of a task.
    seed : of the split into seen and held-out questions, and of the samples (a run's own, else 0).
    precision : of forward passes. task_options : parameters of the task.
    tell : called with what is being measured, how much is done, and how much there is.

    Questions: `greedy` exact answers on each side, and from samples the unbiased `pass@k`
    (2107.03374), `maj@k` (2203.11171; ties in expectation) and `mean@n`, the mean score. Control:
    the return of whole episodes, by the most likely actions (`greedy`) and `sampled` ones.
    Generators: the reward of `sampled` points and of the `deterministic` flow. Demonstrations:
    `nll` and `perplexity` per token, and the share of tokens that are the likeliest. Pairs: how
    often the preferred answer is the likelier one, as a whole and per token.

    Raises `UsageError` for anything a user can mend.
    """
    policy = getattr(policy, "out", policy)  # a finished run
    policy = str(policy) if isinstance(policy, Path) else policy
    facts = recorded(policy) if isinstance(policy, str) else {}
    settings = facts.get("settings", {})
    seed = settings.get("seed", 0) if seed is None else seed
    if isinstance(task, str):
        if facts and not (task or dataset):
            task, dataset, reward, task_options = asked(facts, reward, task_options)
            horizon = horizon or settings.get("horizon", 0)
        options = dict(task_options or {})
        task = load_task(task, seed=seed, dataset=str(dataset), reward=reward, **options)
    elif reward or dataset or task_options:
        raise UsageError("a task that is an object has all that it needs: leave out what is of one")
    how = How(n, k, samples, temperature, horizon, seed, tell)
    _effective(task, how)
    if isinstance(policy, str):
        policy = load_policy(policy, task=task, precision=precision, seed=seed)
    policy.publish()
    sides = MEASURES[task.kind](policy, task, how)
    names = {"kind": task.kind, "task": task.name, "policy": policy.name}
    said = {"n": n, "k": k, "samples": how.drawn, "temperature": temperature, "seed": seed}
    return Scores(sides, {**names, **said, "horizon": horizon}, task)


def recorded(policy: str) -> dict[str, Any]:
    """What `anypo.json` says of the run that a folder belongs to; empty where there is none."""
    folder = run_of(policy)
    return json.loads((folder / "anypo.json").read_text("utf-8")) if folder else {}


def asked(facts: Mapping[str, Any], reward: Any, options: Any) -> tuple[str, str, Any, Any]:
    """Task, dataset, reward and parameters as a run was asked for; what is given goes before."""
    if "asked" not in facts:
        name = facts.get("task", {}).get("name", "")
        raise UsageError(
            f"the run was trained on a task without a name to make it again from ({name}): "
            "name the task, or a dataset"
        )
    was = facts["asked"]
    return was["task"], was["dataset"], reward or was["reward"], options or was["task_options"]


def _effective(task: Any, how: How) -> None:
    """Refuse options that this kind of task does not read."""
    asks = task.kind == "language"
    for name in ("k", "samples", "horizon"):
        if getattr(how, name) and not asks:
            raise UsageError(f"{name} acts on questions; {task.name} is of kind {task.kind}")
    idle = not how.drawn if asks else task.kind != "control"
    if how.temperature != 1 and idle:
        cure = "give k, of how many" if asks else "leave it out"
        raise UsageError(f"temperature acts on samples, and none are drawn here: {cure}")


# ── questions ────────────────────────────────────────────────────────────────────────────────────


def _questions(policy: Any, task: Any, how: How) -> dict[str, Side]:
    sides = {"seen": task.train, "held_out": task.held_out}
    horizon = how.horizon or task.horizon
    chosen = {name: list(rows)[: how.n] for name, rows in sides.items()}
    return {
        name: _side(policy, task, name, rows, horizon, how) for name, rows in chosen.items() if rows
    }


def _side(policy: Any, task: Any, name: str, rows: list[Any], horizon: int, how: How) -> Side:
    found: list[dict[str, Any]] = []
    for lot in _lots(rows, 1):
        how.tell(f"{name}, greedy", len(found), len(rows))
        for drawn, row in zip(language.greedy(policy, lot, horizon), lot):
            right = bool(task.exact(drawn.text, row))
            said = {"greedy/completion": drawn.text, "greedy/truncated": not drawn.finished}
            found.append({"prompt": drawn.prompt_text, "greedy": float(right), **said})
    how.tell(f"{name}, greedy", len(found), len(rows))
    measures = {"greedy": share([row["greedy"] for row in found])}
    if how.drawn:
        done = 0
        for lot in _lots(rows, how.drawn):
            how.tell(f"{name}, {how.drawn} samples each", done, len(rows))
            for own in _sampled(policy, task, name, lot, done, horizon, how):
                found[done] |= own
                done += 1
        how.tell(f"{name}, {how.drawn} samples each", done, len(rows))
        measures |= _sampled_measures(found, how)
    return Side(measures, found)


def _lots(rows: list[Any], samples: int) -> list[list[Any]]:
    size = max(1, TOGETHER // samples)
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def _sampled(
    policy: Any, task: Any, side: str, rows: list[Any], start: int, horizon: int, how: How
) -> list[dict[str, Any]]:
    """One row of samples, their scores and what follows from them, for each question."""
    names = [(start + i, g) for i in range(len(rows)) for g in range(how.drawn)]
    drawn = policy.generate(
        [row["prompt"] for row in rows],
        how.drawn,
        horizon,
        keys=[key(how.seed, "evaluate", side, *name) for name in names],
        temperature=how.temperature,
    )
    asked_ = [rows[c.prompt] for c in drawn]
    texts = [c.text for c in drawn]
    ids = [c.token_ids.tolist() for c in drawn]
    scores = task.score([row["prompt"] for row in asked_], texts, asked_, ids)
    right = _right(task, texts, asked_, scores)
    answers = [_answer(task, *pair) for pair in zip(texts, scores)]
    parts = [slice(i, i + how.drawn) for i in range(0, len(drawn), how.drawn)]
    return [_question(texts[p], scores[p], right[p], answers[p], how) for p in parts]


def _right(task: Any, texts: list[str], rows: list[Any], scores: Sequence[float]) -> list[bool]:
    """Whether each is exact; where that is what the score says, nothing is judged twice."""
    if getattr(type(task), "exact", None) is Problems.exact:
        return [reaches(score) for score in scores]
    return [bool(task.exact(text, row)) for text, row in zip(texts, rows)]


def _answer(task: Any, text: str, score: Any) -> str:
    """What is voted on: the `answer` that the reward reports, else as the task reads it."""
    if isinstance(score, Score) and "answer" in score.facts:
        return str(score.facts["answer"])
    return getattr(task, "answer", str.strip)(text)


def _question(
    texts: list[str], scores: list[float], right: list[bool], answers: list[str], how: How
) -> dict[str, Any]:
    credits: defaultdict[str, list[bool]] = defaultdict(list)
    for answer, good in zip(answers, right):
        credits[answer].append(good)
    votes = [(len(v), sum(v) / len(v)) for v in credits.values()]
    known = [float(s) for s in scores if not math.isnan(s)]
    out: dict[str, Any] = {f"pass@{k}": pass_at(k, sum(right), how.drawn) for k in how.ks}
    out |= {f"maj@{k}": majority_at(k, votes) for k in how.ks if k > 1}
    out[f"mean@{how.drawn}"] = sum(known) / len(known) if known else None
    said = {"completions": texts, "scores": [float(s) for s in scores], "right": right}
    return {**out, **said, "answers": answers}


def _sampled_measures(rows: list[dict[str, Any]], how: How) -> dict[str, Measure]:
    names = [f"pass@{k}" for k in how.ks] + [f"maj@{k}" for k in how.ks if k > 1]
    measures = {
        name: share([row[name] for row in rows], how.drawn // int(name.split("@")[1]))
        for name in names
    }
    name = f"mean@{how.drawn}"
    known = [row[name] for row in rows if row[name] is not None]
    scores = [s for row in rows for s in row["scores"] if not math.isnan(s)]
    measures[name] = _mean(known, scores, how.drawn)
    return measures


def _mean(values: list[float], scores: list[float], draws: int = 1) -> Measure:
    """The mean of values, which are means of scores; these decide whether it is one of shares."""
    return share(values, draws) if all(0 <= s <= 1 for s in scores) else average(values)


# ── episodes, points, pairs and demonstrations ───────────────────────────────────────────────────


def _control(policy: Any, task: Any, how: How) -> dict[str, Side]:
    what = {"greedy": 0.0, "sampled": how.temperature}
    rows: list[dict[str, Any]] = [{} for _ in range(how.n)]
    for done, (name, temperature) in enumerate(what.items()):
        how.tell(f"{name} episodes", done, len(what))
        played = episodes(policy, task, how.n, temperature=temperature, seed=how.seed)
        for row, one in zip(rows, played):
            row |= {"seed": one.seed, name: one.total, f"{name}/steps": one.steps}
            row[f"{name}/finished"] = one.finished
    how.tell("episodes", len(what), len(what))
    return {"episodes": Side({name: average([r[name] for r in rows]) for name in what}, rows)}


def _generator(policy: Any, task: Any, how: How) -> dict[str, Side]:
    request = Request(prompts=how.n, seed=how.seed, stream="evaluate", version=-1)
    batch = generator.rollout(request, policy, task)
    points = {
        "sampled": batch.table("traj")["sample"],
        "deterministic": policy.sample(how.n, seed=key(how.seed, "evaluate")),
    }
    rows: list[dict[str, Any]] = [{"number": i} for i in range(how.n)]
    for name, x in points.items():
        rewards = torch.as_tensor(task.reward(x)).double().tolist()
        for row, reward, point in zip(rows, rewards, x.tolist()):
            row |= {name: reward, f"{name}/point": point}
    values = {name: [row[name] for row in rows] for name in points}
    return {"points": Side({name: _mean(x, x) for name, x in values.items()}, rows)}


MEASURES: dict[str, Callable[[Any, Any, How], dict[str, Side]]] = {
    "language": _questions,
    "control": _control,
    "generator": _generator,
    "preference": given.pairs,
    "demonstration": given.demonstrations,
}
"""Kind of a task → how it is measured."""
