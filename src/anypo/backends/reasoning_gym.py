"""reasoning-gym's procedural datasets as language tasks, generated and scored in a worker.

The worker has a fixed hash seed and resets Python's and numpy's global random state before each
item, because some datasets iterate over sets or use those streams: without that, a resumed run
would be asked other questions.
"""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import count
from typing import Any

from anypo.core.errors import UsageError, nearest
from anypo.tasks.task import Problems, Prompt, Row, each, exact_answer, split
from anypo.tasks.worker import Worker, WorkerDied, WorkerLate

MEMORY = 8 << 30  # bytes of address space; some scorers evaluate what a model wrote
OURS = ("size", "partial", "instruction", "horizon", "held_out", "timeout")
NONSENSE = "no answer at all ("  # what no scorer may take for right
LONG = 3600.0  # seconds for generating a dataset; its slowest take a third of a second an item
ARITHMETIC = {
    "min_terms": 2,
    "max_terms": 2,
    "min_digits": 1,
    "max_digits": 1,
    "operators": ["+", "*"],
    "allow_parentheses": False,
    "allow_negation": False,
}


def reasoning_gym_task(
    dataset: str,
    *,
    seed: int = 0,
    size: int = 500,
    partial: bool = False,
    instruction: str = "",
    horizon: int = 64,
    held_out: int = 60,
    timeout: float = 10.0,
    **params: Any,
) -> Problems:
    """Any dataset of reasoning-gym by name, with its own parameters.

    The answer that is scored is what stands between the last `<answer>` tags, or the whole
    completion where there are none. A completion on which the dataset's scorer raises or outlasts
    `timeout` has score 0: the answer has no readable form. Deviation: where a scorer gives full
    marks to any text (`game_of_life_halting` does), only the dataset's own answer gets them.

    Parameters
    ----------
    dataset : name in reasoning-gym, for example `chain_sum`.
    seed : decides the items, and which questions are held out.
    size : items generated; a repeated question is kept once. 500 is reasoning-gym's.
    partial : False gives 1 for a full score and 0 else; True the dataset's own partial credit.
    instruction : a line after each question.
    horizon : most tokens of a completion.
    held_out : questions kept out of training, at most a third.
    timeout : seconds for scoring one completion.
    params : the dataset's own; `composite` takes `datasets` as a list of mappings with `name`,
        `weight` and `config`.

    Raises `UsageError` for an unknown dataset or parameter, with the nearest names, and for
    values that the dataset refuses.
    """
    if not (isinstance(size, int) and size > 0):
        raise UsageError(f"size={size!r} makes no dataset: give a positive number of items")
    what = [dataset, json.dumps(params, sort_keys=True), size, _stream(seed)]
    items = _worker().call("generate", *what, seconds=LONG)
    rows = {item["question"]: _asked(item, instruction) for item in items}
    train, out = split(list(rows.values()), held_out, seed)
    details = {"dataset": dataset, "params": params, "size": size, "seed": seed}
    details |= {"partial": partial, "instruction": instruction}
    scorer = Scores(tuple(what), partial, timeout)
    return Problems(f"reasoning_gym:{dataset}", train, out, scorer, horizon, details)


def arithmetic(
    *,
    seed: int = 0,
    instruction: str = "Answer with only the number.",
    horizon: int = 8,
    held_out: int = 60,
) -> Problems:
    """All one-digit sums and products of reasoning-gym's `basic_arithmetic`: some 240 questions.

    The reward is 1 for the number and nothing else, and 0 otherwise. Numbers run from 0 to 10,
    which is what that dataset calls one digit. Every distinct question is a row, whatever the
    seed: items are generated until 5,000 more of them bring nothing new.

    Parameters
    ----------
    seed : which questions are held out.
    instruction : a line after each question.
    horizon : most tokens of a completion.
    held_out : questions kept out of training, with their mirror images; at most a third.
    """
    found: dict[str, Row] = {}
    for chunk in count():
        what = ["basic_arithmetic", json.dumps(ARITHMETIC), 5000, 5000 * chunk]
        known = len(found)
        for item in _worker().call("generate", *what, seconds=LONG):
            found.setdefault(item["question"], _asked(item, instruction))
        if len(found) == known:
            break
    _worker().close()  # scoring needs no library, and the memory is better spent on the model
    train, out = split([found[text] for text in sorted(found)], held_out, seed)
    details = {"seed": seed, "instruction": instruction}
    return Problems("arithmetic", train, out, each(exact_answer), horizon, details)


def dataset_names() -> list[str]:
    """The names of reasoning-gym's datasets."""
    return _worker().call("names", seconds=LONG)


class Scores:
    """A `Scorer` that asks the worker, which holds the items and the dataset's own rule."""

    def __init__(self, what: tuple[Any, ...], partial: bool, timeout: float) -> None:
        self.what, self.partial, self.timeout = what, partial, timeout

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """Exact or partial credit of each completion."""
        credits = [self._credit(c, row["index"]) for c, row in zip(completions, rows)]
        return credits if self.partial else [float(credit == 1.0) for credit in credits]

    def answer(self, completion: str) -> str:
        """What is scored of a completion: what stands in the last `<answer>` tags, or all of it."""
        tagged = re.findall(r"<answer>(.*?)</answer>", completion, re.DOTALL)
        return (tagged[-1] if tagged else completion).strip() or completion.strip()

    def _credit(self, completion: str, index: int) -> float:
        try:
            return _worker().call("grade", *self.what, index, completion, seconds=self.timeout)
        except (WorkerLate, WorkerDied):
            return 0.0


def _asked(item: Row, instruction: str) -> Row:
    text = f"{item['question']}\n{instruction}" if instruction else item["question"]
    return {"prompt": [{"role": "user", "content": text}]} | item


def _stream(seed: int) -> int:
    """The dataset's seed; item i comes from `seed + i`, so those of two runs must lie far apart."""
    return random.Random(f"reasoning_gym {seed}").getrandbits(31)


@cache
def _worker() -> Worker:
    return Worker(__name__, memory=MEMORY, preload=("numpy", "reasoning_gym"))


# ── what the worker runs ─────────────────────────────────────────────────────────────────────────


def names() -> list[str]:
    """The names of all datasets."""
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def generate(dataset: str, params: str, size: int, seed: int) -> list[Row]:
    """The items of a dataset: `question`, `answer` (None where any valid one will do), `index`."""
    _dataset(dataset, params, size, seed)
    entries = [(_entry(dataset, params, size, seed, index), index) for index in range(size)]
    return [{name: e[name] for name in ("question", "answer")} | {"index": i} for e, i in entries]


def grade(dataset: str, params: str, size: int, seed: int, index: int, completion: str) -> float:
    """The dataset's own credit for a completion; 0 where its scorer cannot read the answer."""
    from reasoning_gym.utils import extract_answer

    entry = _entry(dataset, params, size, seed, index)
    answer = extract_answer(completion) or completion.strip()
    scorer = _dataset(dataset, params, size, seed).score_answer
    credit = _credit(scorer, answer, entry)
    blind = credit == 1.0 and answer != entry["answer"] and _credit(scorer, NONSENSE, entry) == 1.0
    return 0.0 if blind else credit


def _credit(scorer: Any, answer: str, entry: Any) -> float:
    try:
        return float(scorer(answer, entry))
    except Exception:  # each of the hundred scorers fails in its own way on what it cannot read
        return 0.0


@lru_cache(maxsize=8)
def _dataset(dataset: str, params: str, size: int, seed: int) -> Any:
    from reasoning_gym import create_dataset
    from reasoning_gym.composite import DatasetSpec
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        raise UsageError(f"reasoning-gym has no dataset {dataset!r}{nearest(dataset, DATASETS)}")
    given = json.loads(params)
    fields = [field.name for field in dataclasses.fields(DATASETS[dataset][1])]
    takes = sorted({*fields, *OURS} - {"seed"})
    for name in given:
        if name not in fields:
            near = nearest(name, takes) or f"; it takes {', '.join(takes)}"
            raise UsageError(f"reasoning_gym:{dataset} has no parameter {name!r}{near}")
    try:
        if dataset == "composite":
            given["datasets"] = [DatasetSpec(**spec) for spec in given.get("datasets", [])]
        _reset(seed)
        made = create_dataset(dataset, seed=seed, size=size, **given)
        made[0]
    except Exception as error:
        told = ", ".join(f"{k}={v!r}" for k, v in json.loads(params).items()) or "its defaults"
        raise UsageError(f"reasoning_gym:{dataset} refuses {told}: {error}") from error
    return made


@lru_cache(maxsize=65536)
def _entry(dataset: str, params: str, size: int, seed: int, index: int) -> Any:
    made = _dataset(dataset, params, size, seed)
    _reset(seed + index)
    return made[index]


def _reset(seed: int) -> None:
    import numpy

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
