"""`diagnose`: everything that is wrong with a run, worst first, causes before what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from anypo.doctor import policy, reward, sampler, signal, weights, words
from anypo.doctor.finding import SEVERITIES, Check, Finding, Unchecked
from anypo.doctor.record import Record, Rows

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (sampler, weights, signal, reward, policy, words)
    for check in vars(module).values()
    if isinstance(check, Check)
)
"""Every kind of trouble, one check each."""


@dataclass(frozen=True)
class Diagnosis:
    """What the checks found, worst first, and which of them could not be made."""

    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...]
    checked: int

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong; notes are no alarm."""
        return not any(f.alarm for f in self.findings)


def diagnose(
    facts: Mapping[str, Any] | Record,
    rows: Rows = (),
    scores: Mapping[str, Any] | None = None,
    completions: Mapping[int, Rows] | None = None,
) -> tuple[Finding, ...]:
    """What is wrong with a run, worst first; empty for a healthy one.

    Parameters
    ----------
    facts : the content of `anypo.json`, or a whole `Record`, which needs nothing else.
    rows : those of `metrics.jsonl`.
    scores : `before` and `after`, as in `scores.json`.
    completions : iteration → rows of its file of completions; some iterations suffice.

    A pure function: it reads no file and changes nothing.
    """
    if not isinstance(facts, Record):
        facts = Record(facts, rows, scores or {}, completions or {})
    return examine(facts).findings


def examine(record: Record) -> Diagnosis:
    """Every check on a record."""
    said = [check(record) for check in CHECKS]
    found = [x for x in said if isinstance(x, Finding)]
    unchecked = tuple(x for x in said if isinstance(x, Unchecked))
    return Diagnosis(_ordered(found), unchecked, len(CHECKS) - len(unchecked))


def _ordered(found: list[Finding]) -> tuple[Finding, ...]:
    """Worst first; what another finding explains comes after it, and names it."""
    there = {f.kind for f in found}
    known = {c.kind: c.causes for c in CHECKS}
    linked = [replace(f, because=tuple(k for k in known[f.kind] if k in there)) for f in found]
    return tuple(sorted(linked, key=lambda f: (f.severity == "note", bool(f.because), _rank(f))))


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)
