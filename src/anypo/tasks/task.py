"""The kinds of task, and the rule that keeps held-out questions out of training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any, Literal, Protocol

from anypo.core.errors import UsageError
from anypo.core.score import reaches

Row = dict[str, Any]
Prompt = str | list[dict[str, str]]


class Scorer(Protocol):
    """What judges completions: one number each, NaN where a completion cannot be scored."""

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """Scores of `B` completions, each beside its prompt and the dataset row it answers."""
        ...


class LanguageTask(Protocol):
    """Questions with a verifiable answer; rows hold `prompt` and the dataset's other columns."""

    kind: str
    name: str
    train: Sequence[Row]
    held_out: Sequence[Row]
    horizon: int

    def score(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """Rewards of `B` completions; NaN = not scorable."""
        ...

    def exact(self, completion: str, row: Row) -> bool:
        """Whether an evaluation counts this completion as right."""
        ...

    def order(self, position: int, seed: int) -> int:
        """The row of `train` that comes `position`-th in this seed's order."""
        ...

    def settings(self) -> dict[str, Any]:
        """A JSON-able description for the run's record."""
        ...


class PreferenceTask(Protocol):
    """Pairs; rows hold `prompt`, `chosen` and `rejected`, as text or as chat messages."""

    kind: str
    name: str
    train: Sequence[Row]
    held_out: Sequence[Row]

    def order(self, position: int, seed: int) -> int:
        """The row of `train` that comes `position`-th in this seed's order."""
        ...

    def settings(self) -> dict[str, Any]:
        """A JSON-able description for the run's record."""
        ...


class ControlTask(Protocol):
    """An environment whose observations are vectors; `horizon` steps contain an episode."""

    kind: str
    name: str
    observation_size: int
    action_count: int
    horizon: int

    def make(self) -> Any:
        """A fresh environment, not yet reset; `reset(seed)` decides everything random in it."""
        ...


class GeneratorTask(Protocol):
    """Points of dimension `dim` with a reward each."""

    kind: str
    name: str
    dim: int

    def reward(self, x: Any) -> Any:
        """Rewards of points, `[B, dim] → [B]`."""
        ...


@dataclass(frozen=True)
class Problems:
    """A `LanguageTask` out of rows and a scorer; a completion is exact when its score reaches 1.

    Parameters
    ----------
    name : as the user wrote it.
    train, held_out : rows; no question of one side is on the other.
    scorer : judges completions.
    horizon : most tokens of a completion.
    details : what else the run's record should say.
    """

    name: str
    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    scorer: Scorer
    horizon: int
    details: Mapping[str, Any] = field(default_factory=dict)

    kind = "language"

    def __post_init__(self) -> None:
        if not (isinstance(self.horizon, int) and self.horizon > 0):
            wrong = f"horizon={self.horizon!r} leaves {self.name} no room for an answer"
            raise UsageError(f"{wrong}: give a positive number of tokens")

    def score(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """Rewards of `B` completions; NaN = not scorable."""
        return self.scorer(prompts, completions, rows, completion_ids)

    def exact(self, completion: str, row: Row) -> bool:
        """Whether the completion's score reaches 1 (a score of NaN does not).

        Of several rewards only the first is asked; one that reports `exact` says so itself.
        """
        judge = getattr(self.scorer, "exact", None)
        if judge is not None:
            return bool(judge(row["prompt"], completion, row))
        return reaches(self.score([row["prompt"]], [completion], [row])[0])

    def answer(self, completion: str) -> str:
        """What a completion answers, to be voted on: as the scorer reads it, else all its text."""
        read = getattr(self.scorer, "answer", str.strip)
        return read(completion)

    def order(self, position: int, seed: int) -> int:
        """The row of `train` that comes `position`-th in this seed's order."""
        return order(len(self.train), position, seed)

    def settings(self) -> dict[str, Any]:
        """Name, sizes, horizon and details."""
        return _settings(self) | {"horizon": self.horizon} | dict(self.details)


@dataclass(frozen=True)
class Given:
    """Rows that hold their answers.

    Parameters
    ----------
    name, train, held_out, details : as in `Problems`.
    max_length : most tokens of a row, its prompt included (0 = as many as the policy reads).
    too_long : `drop` leaves longer rows out, `cut` keeps their first tokens.
    """

    name: str
    train: tuple[Row, ...]
    held_out: tuple[Row, ...]
    details: Mapping[str, Any] = field(default_factory=dict)
    max_length: int = 0
    too_long: Literal["drop", "cut"] = "drop"

    def __post_init__(self) -> None:
        if not (isinstance(self.max_length, int) and self.max_length >= 0):
            raise UsageError(
                f"max_length={self.max_length!r} is no number of tokens: give 1 or more"
            )
        if self.too_long not in ("drop", "cut"):
            raise UsageError(f"too_long={self.too_long!r}: it must be drop or cut")

    def order(self, position: int, seed: int) -> int:
        """The row of `train` that comes `position`-th in this seed's order."""
        return order(len(self.train), position, seed)

    def settings(self) -> dict[str, Any]:
        """Name, sizes, limits and details."""
        limits = {"max_length": self.max_length, "too_long": self.too_long}
        return _settings(self) | limits | dict(self.details)


class Preferences(Given):
    """A `PreferenceTask` out of rows with `prompt`, `chosen` and `rejected`."""

    kind = "preference"


class Demonstrations(Given):
    """Answers to imitate; rows hold `prompt` and `completion`, as text or as chat messages.

    A row whose prompt is None is a text that is all said.
    """

    kind = "demonstration"


def _settings(task: Any) -> dict[str, Any]:
    sizes = {"train": len(task.train), "held_out": len(task.held_out)}
    return {"name": task.name, "kind": task.kind} | sizes


def order(n_rows: int, position: int, seed: int) -> int:
    """The row that comes `position`-th: each epoch is a fresh shuffle of all the rows.

    A pure function of its arguments, so a resumed run goes on where it stopped, without a cursor
    file. The stream is Python's own, which keeps tasks importable without torch.
    """
    epoch, place = divmod(position, n_rows)
    return _shuffled(n_rows, f"order {seed} {epoch}")[place]


@lru_cache(maxsize=8)
def _shuffled(n: int, stream: str) -> list[int]:
    rows = list(range(n))
    Random(stream).shuffle(rows)
    return rows


def question(prompt: Prompt) -> str:
    """The text that identifies a prompt; a chat is its roles and contents, in order."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in prompt)


def asked(row: Row) -> str:
    """The text that identifies a row's question; a row without a prompt is its own."""
    return question(row["completion"] if row["prompt"] is None else row["prompt"])


def mirror(text: str) -> tuple[str, ...]:
    """The sorted tokens of a question: "3 + 5" and "5 + 3" are images of each other."""
    return tuple(sorted(re.findall(r"\w+|[^\w\s]", text)))


def split(
    rows: Sequence[Row], held_out: int = 60, seed: int = 0
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Cut rows into training and held-out ones by question, so that no question is on both sides.

    Rows that are equal in every column are kept once; rows of one question stay together, and so
    do the questions that are mirror images. Both sides keep the order of `rows`.

    Parameters
    ----------
    rows : each with a `prompt`.
    held_out : distinct questions wanted on the held-out side; at most a third of all are taken.
        Exactly that many are, unless the images leave no way to it; then images that alone
        outnumber the wanted questions are parted (of a board game, say, every question may be a
        rearrangement of every other), and what is still in the way makes the side smaller.
    seed : chooses which questions are held out.

    Returns the training rows and the held-out rows; raises `UsageError` for a bad `held_out`.
    """
    if not (isinstance(held_out, int) and held_out >= 0):
        raise UsageError(f"held_out={held_out!r} is no number of questions: give 0 or more")
    rows = list({json.dumps(row, sort_keys=True, default=str): row for row in rows}.values())
    questions = sorted({asked(row) for row in rows})
    wanted = min(held_out, len(questions) // 3)
    chosen = _choose(_images(questions, most=len(questions)), wanted, seed)
    if len(chosen) < wanted:
        chosen = _choose(_images(questions, most=wanted), wanted, seed)
    side = [asked(row) in chosen for row in rows]
    return (
        tuple(row for row, out in zip(rows, side) if not out),
        tuple(row for row, out in zip(rows, side) if out),
    )


def _images(questions: Sequence[str], most: int) -> list[list[str]]:
    classes: dict[tuple[str, ...], list[str]] = {}
    for text in questions:
        classes.setdefault(mirror(text), []).append(text)
    whole = [members for members in classes.values() if len(members) <= most]
    parted = [[text] for members in classes.values() if len(members) > most for text in members]
    return whole + parted


def _choose(classes: list[list[str]], wanted: int, seed: int) -> set[str]:
    """Whole classes in a random order, each taken if the rest can still fill up to `wanted`.

    `reach[i]` has bit k set when some of the classes from i on have k questions together.
    """
    classes = [classes[i] for i in _shuffled(len(classes), f"held out {seed}")]
    within = (1 << (wanted + 1)) - 1
    reach = [1]
    for members in reversed(classes):
        reach.append((reach[-1] | reach[-1] << len(members)) & within)
    reach.reverse()
    missing = reach[0].bit_length() - 1
    chosen: list[str] = []
    for members, rest in zip(classes, reach[1:]):
        if len(members) <= missing and rest >> (missing - len(members)) & 1:
            chosen += members
            missing -= len(members)
    return set(chosen)


def each(scorer: Callable[[str, Row], float]) -> Scorer:
    """A `Scorer` out of a function that judges one completion and needs only its row."""

    def score(
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        return [scorer(completion, row) for completion, row in zip(completions, rows)]

    return score


def exact_answer(completion: str, row: Row) -> float:
    """1 for a completion that is the row's `answer` and nothing else but white space, else 0."""
    return float(completion.strip() == row["answer"])
