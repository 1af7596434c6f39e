"""Did it learn, and how sure: what the numbers of a run allow to be said, and no more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anypo.engine.measure import student
from anypo.report.charts import short
from anypo.report.run import Point, RunData, share

LEAST = 10
"""Iterations below which a change of their means gets no interval."""


@dataclass(frozen=True)
class Change:
    """What was measured, first and last, when, and the difference with its 95 % interval.

    The interval is infinite where none can be had; `why` says why not.
    """

    what: str
    before: float
    after: float
    low: float
    high: float
    when: tuple[str, str] = ("before training", "after training")
    unit: str = ""
    better: int = 1
    why: str = ""

    @property
    def tone(self) -> str:
        """`better` or `worse` where the interval holds no 0, else `unsure`."""
        low, high = sorted((self.better * self.low, self.better * self.high))
        return "better" if low > 0 else "worse" if high < 0 else "unsure"

    @property
    def difference(self) -> float:
        """Last minus first."""
        return self.after - self.before

    @property
    def sentence(self) -> str:
        """What changed, from what to what, and between which bounds the change lies."""
        a, b = (self.said(x) for x in (self.before, self.after))
        way = f"{self.what} went from {a} ({self.when[0]}) to {b} ({self.when[1]})"
        if not math.isfinite(self.low):
            return f"{way}.{self.why}"
        points = " points" if self.unit else ""
        bounds = f"between {self._signed(self.low)} and {self._signed(self.high)}{points}"
        return f"{way}. With 95 % confidence that is a change {bounds}."

    def said(self, x: float) -> str:
        """A value in words: percent whole, other numbers in three digits."""
        return f"{x:.0f}{self.unit}" if self.unit else short(x)

    def _signed(self, x: float) -> str:
        sign = "+" if x > 0 else "−" if x < 0 else ""
        return sign + (f"{abs(x):.0f}" if self.unit else short(abs(x)))


@dataclass(frozen=True)
class Verdict:
    """`tone` (`better`, `worse`, `unsure`, `none`), a headline, and the sentences behind it."""

    tone: str
    head: str
    sentences: tuple[str, ...]
    change: Change | None = None


HEADS = {"better": "It learned", "worse": "It got worse", "unsure": "No certain change"}
PRACTISED = "Better at what it practised, uncertain beyond"
OVERFITTED = "Better at what it practised, worse beyond"


def verdict(run: RunData) -> Verdict:
    """The strongest statement that a run's own numbers bear."""
    measure = {"preference": pairs_told_apart, "demonstration": surprise_change}
    beyond, seen = (measure.get(run.kind, accuracy_change)(run, s) for s in ("held_out", "seen"))
    found = [c for c in (beyond, seen, mean_change(run)) if c]
    if not found:
        why = "No iteration is finished." if not run.rows else "This run recorded no outcome."
        return Verdict("none", "Nothing to judge by yet", (why,))
    tone, head = _judged(beyond, found)
    so_far = "" if run.ended else ", so far"
    return Verdict(tone, head + so_far, tuple(c.sentence for c in found), found[0])


def _judged(beyond: Change | None, found: list[Change]) -> tuple[str, str]:
    """What was never trained on decides; where it is not certain, what was practised is said."""
    certain = [c for c in found if math.isfinite(c.low)] or found
    tone = certain[0].tone
    if beyond and beyond is not certain[0] and tone == "better":  # measured, but without interval
        learned = beyond.better * beyond.difference > 0
        return ("better", HEADS["better"]) if learned else ("unsure", OVERFITTED)
    if beyond and tone != "better" and any(c.tone == "better" for c in certain[1:]):
        return tone, PRACTISED if tone == "unsure" else OVERFITTED
    return tone, HEADS[tone]


SIDES = {
    "held_out": "Greedy accuracy on questions never trained on",
    "seen": "On questions seen in training it",
}
PAIRS = {
    "held_out": "The share of pairs never trained on in which it prefers the better answer",
    "seen": "On pairs seen in training that share",
}
ANSWERS = {
    "held_out": "Its surprise at answers never trained on, in nats per token,",
    "seen": "At answers seen in training it",
}


def accuracy_change(run: RunData, side: str) -> Change | None:
    """Greedy accuracy on a side of the questions, in percent, last against first."""
    before = share(run.scores.get("before", {}), side)
    measured = [p for p in run.accuracy(side) if p.step > 0]
    if not before or not measured:
        return None
    values = (before.value, measured[-1].value, *newcombe(before, measured[-1]))
    percent = (100 * x for x in values)
    return Change(SIDES[side], *percent, when=("before training", _end(run, measured[-1])), unit=PC)


PC = "\u202f%"


def _end(run: RunData, last: Point) -> str:
    return "after training" if run.ended else f"iteration {last.step}"


def pairs_told_apart(run: RunData, side: str) -> Change | None:
    """In how many pairs the better answer scores higher, in percent, against guessing.

    A policy that is its own reference ties on all pairs before training: that is no 0 %.
    """
    measured = [p for p in run.accuracy(side) if p.step > 0]
    if not measured:
        return None
    last = measured[-1]
    percent = (50.0, 100 * last.value, 100 * last.low - 50, 100 * last.high - 50)
    return Change(PAIRS[side], *percent, when=("guessing", _end(run, last)), unit=PC)


def surprise_change(run: RunData, side: str) -> Change | None:
    """The mean of −logp of a side's answers, last against first."""
    name = f"{side}/nll"
    known = [x for _, x in run.series(name)]
    known += [x] if (x := run.scores.get("after", {}).get(name)) is not None else []
    before = run.scores.get("before", {}).get(name)
    if before is None or not known:
        return None
    when = "before training", "after training" if run.ended else "so far"
    return Change(ANSWERS[side], before, known[-1], -math.inf, math.inf, when, "", -1)


def newcombe(before: Point, after: Point) -> tuple[float, float]:
    """95 % interval of the difference of two shares, out of their Wilson intervals.

    It takes the two for independent; on the same questions it is wide rather than narrow.
    Reference: Newcombe (1998), Statistics in Medicine 17, method 10.
    """
    difference = after.value - before.value
    down = math.hypot(after.value - after.low, before.high - before.value)
    up = math.hypot(after.high - after.value, before.value - before.low)
    return difference - down, difference + up


MEANS = (
    ("rollout/ep_rew_mean", "The mean return of finished episodes", 1, ""),
    ("accuracy", "In training the share of pairs that it ranks as the data do", 1, "preference"),
    ("nll", "In training its surprise, in nats per token,", -1, "demonstration"),
    ("reward", "The mean reward of sampled trajectories", 1, ""),
)
"""Metrics by which to judge, in words, the better direction, and the only kind they suit."""


FEW = " So few iterations say nothing of how sure that is."


def mean_change(run: RunData) -> Change | None:
    """The mean of the last fifth of the iterations against that of the first fifth."""
    for name, words, better, kind in MEANS:
        values = [x for _, x in run.series(name)]
        out = (run.given and name == "reward") or (kind and run.kind != kind)
        if values and not out:
            return _ends(values, words, better)
    return None


def _ends(values: Sequence[float], words: str, better: int) -> Change:
    n = len(values)
    if n < LEAST:
        when = "first iteration", "last iteration"
        ends = values[0], values[-1], -math.inf, math.inf
        return Change(words, *ends, when, "", better, FEW)
    k = max(n // 5, 5)
    first, last = values[:k], values[-k:]
    when = f"first {k} iterations", f"last {k}"
    return Change(words, _mean(first), _mean(last), *welch(first, last), when, "", better)


def welch(first: Sequence[float], last: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the difference of two means, last minus first (Welch's t)."""
    n = len(first)
    parts = [_variance(x) / n for x in (first, last)]
    error = sum(parts)
    half = 0.0
    if error:
        freedom = error**2 / sum(p**2 / (n - 1) for p in parts)
        half = student(max(1, int(freedom))) * math.sqrt(error)
    difference = _mean(last) - _mean(first)
    return difference - half, difference + half


def _mean(x: Sequence[float]) -> float:
    return math.fsum(x) / len(x)


def _variance(x: Sequence[float]) -> float:
    return math.fsum((v - _mean(x)) ** 2 for v in x) / (len(x) - 1)
