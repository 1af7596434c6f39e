"""What a check may say, and what a check is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anypo.doctor.record import Record

SEVERITIES = ("serious", "warning", "note")
"""From what ruins a run to what is good to know; a note is no alarm."""

SAMPLED = ("language", "control", "generator")
"""Kinds of task whose answers the policy samples itself."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a run.

    Parameters
    ----------
    kind : a word for scripts. title : for people.
    severity : one of `SEVERITIES`.
    evidence : what the run recorded, in words with its numbers.
    threshold : when this is said. source : where that threshold comes from.
    advice : what to try, the likeliest first; options and commands of anypo.
    iterations : first and last of those that the evidence is about.
    metric : the name of the metric that shows it best, if one does.
    because : kinds of other findings of the same run that may well be its cause.
    """

    kind: str
    title: str
    severity: str
    evidence: str
    threshold: str
    source: str
    advice: tuple[str, ...]
    iterations: tuple[int, int]
    metric: str = ""
    because: tuple[str, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether something is wrong; a note only informs."""
        return self.severity != "note"

    @property
    def sentence(self) -> str:
        """The finding in one line, as it is said while a run goes."""
        first, last = self.iterations
        return f"{self.title} (iterations {first} to {last}): {self.evidence} Try: {self.advice[0]}"


@dataclass(frozen=True)
class Unchecked:
    """A check that could not be made, and what it would need."""

    kind: str
    title: str
    reason: str


@dataclass(frozen=True)
class Seen:
    """What a check saw; together with the check it makes a `Finding`."""

    evidence: str
    advice: tuple[str, ...]
    span: tuple[int, int]
    severity: str = "warning"
    metric: str = ""


@dataclass(frozen=True)
class Needs:
    """What a check found missing, as the end of "needs …"."""

    what: str


Judge = Callable[["Record"], Seen | Needs | None]


@dataclass(frozen=True)
class Check:
    """One kind of trouble.

    Parameters
    ----------
    kind, title : as in a finding. threshold, source : likewise.
    judge : a pure function of a record.
    needs : metrics without which nothing can be said; `a|b` is either.
    tasks : kinds of task to which it applies.
    rows : fewest iterations that say anything.
    causes : kinds of trouble that bring this one along.
    """

    kind: str
    title: str
    threshold: str
    source: str
    judge: Judge
    needs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = SAMPLED
    rows: int = 10
    causes: tuple[str, ...] = ()

    def __call__(self, record: Record) -> Finding | Unchecked | None:
        """A finding, why nothing could be said, or None where all is well."""
        if reason := self._lacks(record):
            return Unchecked(self.kind, self.title, reason)
        seen = self.judge(record)
        if isinstance(seen, Needs):
            return Unchecked(self.kind, self.title, f"needs {seen.what}")
        if seen is None:
            return None
        return Finding(
            self.kind,
            self.title,
            seen.severity,
            seen.evidence,
            self.threshold,
            self.source,
            seen.advice,
            seen.span,
            seen.metric,
        )

    def _lacks(self, record: Record) -> str:
        if record.kind not in self.tasks:
            return f"is about tasks of kind {', '.join(self.tasks)}; this is {record.kind}"
        for need in self.needs:
            if not any(len(record.series(name)) for name in need.split("|")):
                return f"needs {need.replace('|', ' or ')}"
        if len(record.rows) < self.rows:
            return f"needs {self.rows} iterations, there are {len(record.rows)}"
        return ""


def check(**facts: Any) -> Callable[[Judge], Check]:
    """A function from a record to what it sees, as a `Check` with these facts."""

    def made(judge: Judge) -> Check:
        return Check(kind=judge.__name__, judge=judge, **facts)

    return made
