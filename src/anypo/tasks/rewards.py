"""Several rewards with weights: their sum, their bounds, and what each said on its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anypo.core.errors import UsageError
from anypo.core.score import Score, reaches
from anypo.tasks.task import Prompt, Row, Scorer

CURVE = "rewards/"
"""What the facts begin with that a run draws as curves of their own."""


class Source(Scorer, Protocol):
    """What scores completions for a part: a function, a judge, a reward model."""

    name: str
    label: str
    required: bool

    @property
    def version(self) -> str:
        """A hash of what decides the scores; empty where there is none."""
        ...

    def check(self, columns: Iterable[str]) -> None:
        """Raise now if a column that it wants is not there."""
        ...


@dataclass(frozen=True)
class Part:
    """One of several rewards.

    Parameters
    ----------
    reward : what scores: `file.py:function`, a callable, a built-in name, `judge:rubric.yaml`, a
        folder with a reward model, or an object such as `Judge(…)`.
    weight : its factor in the sum (default 1; negative for a penalty, not 0).
    name : of its curve, `rewards/NAME` (default: the function's, the file's or the folder's).
    low, high : the range that it declares; a value outside is an error (default: any number).
    clip : move a value outside to the nearest bound instead.
    required : a completion that this part cannot score is not scorable at all, instead of being
        scored by the others (default: yes for judges and models, whose silence is a failure; no
        for functions, whose None is an opinion).
    timeout : seconds for one call (default 0: the task's).
    options : arguments of the function, the built-in, the judge or the model.
    """

    reward: Any
    weight: float = 1.0
    name: str = ""
    low: float = -math.inf
    high: float = math.inf
    clip: bool = False
    required: bool | None = None
    timeout: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("weight", "low", "high", "timeout"):
            _number(name, getattr(self, name))
        if not (math.isfinite(self.weight) and self.weight):
            raise UsageError(f"weight={self.weight}: a reward's weight must be finite and not 0")
        if not self.low < self.high:
            raise UsageError(f"low={self.low}, high={self.high}: low must be below high")
        if self.clip and not self.bounded:
            raise UsageError("clip has no effect without low or high: give one, or leave it out")

    @property
    def bounded(self) -> bool:
        """Whether it declares a range."""
        return not (self.low == -math.inf and self.high == math.inf)


def _number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{name}={value!r} of a reward: give a number")


class Rewards:
    """A `Scorer` out of parts: `score = Σ_k w_k · r_k` over the parts that could score.

    A part that gives None or NaN for a completion is left out of that completion's sum, as TRL
    does it; one whose silence is a failure (`Part.required`) makes the completion not scorable, and
    so does the silence of all. With several parts, `rewards/NAME` is a fact of every score: what
    that part said, before its weight, NaN where it said nothing. An answer is exact when the first
    part says at least 1, so name first what tells right from wrong.

    Parameters
    ----------
    parts : what the user said of each. sources : what scores for each.

    Raises `UsageError` for two parts of one name, for a fact that two parts report, and for a value
    outside the declared range, naming part, value and completion.
    """

    def __init__(self, parts: Sequence[Part], sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        self.names = tuple(p.name or s.label for p, s in zip(parts, sources, strict=True))
        self.parts = tuple(parts)
        if not parts:
            raise UsageError("no reward is named: give at least one")
        for name in self.names:
            if self.names.count(name) > 1:
                raise UsageError(
                    f"two rewards are called {name!r}: give one of them another name=, "
                    "since curves are drawn by name"
                )

    @property
    def name(self) -> str:
        """The parts, with weights that are not 1, as a person would write the sum."""
        if len(self.parts) == 1:
            return self.sources[0].name
        weights = ["" if p.weight == 1 else f"{p.weight:g}·" for p in self.parts]
        return " + ".join(w + n for w, n in zip(weights, self.names))

    def check(self, columns: Iterable[str]) -> None:
        """Raise now if a part cannot be loaded, or wants a column that is not there."""
        for source in self.sources:
            source.check(columns)

    def settings(self) -> dict[str, Any]:
        """What a run records of each part, and compares when it goes on."""
        out: dict[str, Any] = {}
        for name, part, source in zip(self.names, self.parts, self.sources):
            said = {"source": source.name, "weight": part.weight, "version": source.version}
            if part.bounded:
                said |= {"low": part.low, "high": part.high, "clip": part.clip}
            out[name] = {k: str(v) if v in (math.inf, -math.inf) else v for k, v in said.items()}
        return out

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[str],
        rows: Sequence[Row],
        completion_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[float]:
        """One `Score` for each completion, NaN where it cannot be scored."""
        asked = (prompts, completions, rows, completion_ids)
        columns = [self._ask(k, *asked) for k in range(len(self.parts))] if completions else []
        return [self._total(values) for values in zip(*columns)]

    def exact(self, prompt: Prompt, completion: str, row: Row) -> bool:
        """Whether the first part says at least 1, or reports `exact`; the others are not asked."""
        return reaches(self._ask(0, [prompt], [completion], [row], None)[0])

    def answer(self, completion: str) -> str:
        """What a completion answers, as the first part reads it, else all its text."""
        return getattr(self.sources[0], "answer", str.strip)(completion)

    def _ask(self, k: int, prompts: Any, completions: Any, rows: Any, ids: Any) -> list[float]:
        """What a part says of completions, within its bounds."""
        found = self.sources[k](prompts, completions, rows, ids)
        part = self.parts[k]
        return [self._bounded(k, x, i) for i, x in enumerate(found)] if part.bounded else found

    def _bounded(self, k: int, value: float, place: int) -> float:
        part = self.parts[k]
        if math.isnan(value) or part.low <= value <= part.high:
            return value
        if part.clip:
            return Score(min(max(value, part.low), part.high), getattr(value, "facts", {}))
        raise UsageError(
            f"{self.sources[k].name} returned {float(value):g} for completion {place + 1}, outside "
            f"its declared range from {part.low:g} to {part.high:g}: mend it, widen low or high, "
            "or let clip=true move such values to the bound"
        )

    def _total(self, values: Sequence[float]) -> float:
        pairs = list(zip(self.parts, self.sources, values))
        known = [(p, x) for p, _, x in pairs if not math.isnan(x)]
        lost = any(math.isnan(x) and _required(p, s) for p, s, x in pairs)
        total = math.fsum(p.weight * x for p, x in known) if known and not lost else math.nan
        facts = self._facts(values)
        return Score(total, facts) if facts else total

    def _facts(self, values: Sequence[float]) -> dict[str, Any]:
        several = len(self.parts) > 1
        facts: dict[str, Any] = {}
        for name, value in zip(self.names, values):
            own = getattr(value, "facts", {})
            if several:
                own = {_inside(name, k): x for k, x in own.items() if k != "exact"}
                own |= {CURVE + name: float(value)}
            if clash := next((k for k in own if k in facts), None):
                raise UsageError(
                    f"two rewards report the fact {clash!r}: let one call it otherwise"
                )
            facts |= own
        if several:
            facts["exact"] = reaches(values[0])
        return facts


def _inside(part: str, fact: str) -> str:
    """A curve of a part's own, such as a judge's criterion, under the part's name."""
    return f"{CURVE}{part}/{fact.removeprefix(CURVE)}" if fact.startswith(CURVE) else fact


def _required(part: Part, source: Source) -> bool:
    return source.required if part.required is None else part.required
