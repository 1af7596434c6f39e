"""Warnings while a run goes: each finding once, as a sentence."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anypo.doctor.diagnose import examine
from anypo.doctor.finding import Finding
from anypo.doctor.record import Record
from anypo.engine.callbacks import Callback
from anypo.engine.log import read

FIRST, RECENT = 40, 200
"""Rows that are kept: the first ones, to compare with, and the last ones."""


class Live(Callback):
    """Looks at a run's metrics every few iterations, and says what is wrong, each kind once.

    Parameters
    ----------
    notice : called with one sentence for every new finding.
    every : iterations between two looks.

    A finding is said when two looks in a row agree on it; notes are not said, nor what follows from
    something that was said. Nothing here ends a run. Checks of completions wait for `anypo doctor`:
    the only file that is read is the metrics of earlier sittings of the same run, once.
    """

    def __init__(self, notice: Callable[[str], None], every: int = 5) -> None:
        self.notice, self.every = notice, every
        self.said: dict[str, Finding] = {}
        self._facts: dict[str, Any] = {}
        self._first: list[dict[str, Any]] = []
        self._recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        self._suspected: frozenset[str] = frozenset()

    def on_start(self, facts: dict[str, Any]) -> None:
        """Remember what kind of run it is."""
        self._facts = facts

    def on_iteration(self, row: dict[str, Any]) -> None:
        """Look, if it is time to."""
        if not self._first and row["step"] > 1:
            self._catch_up(row["step"])
        self._keep(row)
        if row["step"] % self.every == 0:
            self._look()

    def _catch_up(self, step: int) -> None:
        """The rows of what was done before this sitting."""
        metrics = Path(self._facts.get("out", "")) / "metrics.jsonl"
        for row in read(metrics) if metrics.is_file() else ():
            if row["step"] < step:
                self._keep(row)

    def _keep(self, row: dict[str, Any]) -> None:
        if len(self._first) < FIRST:
            self._first.append(row)
        else:
            self._recent.append(row)

    def _look(self) -> None:
        try:
            found = examine(Record(self._facts, [*self._first, *self._recent])).findings
        except Exception as error:  # advice must not end a run that may have taken days
            self.notice(f"doctor: a check failed ({type(error).__name__}: {error})")
            self.every = 10**9
            return
        alarms = {f.kind: f for f in found if f.alarm}
        for kind, finding in alarms.items():
            explained = any(cause in self.said for cause in finding.because)
            if kind in self._suspected and kind not in self.said and not explained:
                self.said[kind] = finding
                self.notice(f"doctor: {finding.sentence}")
        self._suspected = frozenset(alarms)
