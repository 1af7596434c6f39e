"""What looks on while a run goes: trackers, advice, a person's own code."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Callback:
    """Hooks of a run; each does nothing until a subclass gives it something to do.

    A hook sees the run and changes nothing in it, but `on_iteration` may end it.
    """

    def on_start(self, facts: dict[str, Any]) -> None:
        """The run begins or goes on; `facts` is `anypo.json`, and `out` the run's folder."""

    def on_iteration(self, row: dict[str, Any]) -> str | None:
        """An iteration is done; `row` is its line of `metrics.jsonl`.

        A returned sentence ends the run after a checkpoint, as its reason.
        """

    def on_checkpoint(self, folder: Path) -> None:
        """A checkpoint is whole and in its place."""

    def on_end(self, scores: dict[str, Any]) -> None:
        """The run is over; `scores` is `scores.json`."""

    def on_error(self, error: BaseException) -> None:
        """The run was interrupted, or failed; it can go on later. `on_end` is not called."""


class Callbacks(Callback):
    """Several callbacks as one, called in order."""

    def __init__(self, members: Iterable[Callback] = ()) -> None:
        self.members = tuple(members)

    def on_start(self, facts: dict[str, Any]) -> None:
        """Each begins."""
        for member in self.members:
            member.on_start(facts)

    def on_iteration(self, row: dict[str, Any]) -> str | None:
        """Each sees the row; the first reason to end is the run's."""
        reasons = [member.on_iteration(row) for member in self.members]
        return next((reason for reason in reasons if reason), None)

    def on_checkpoint(self, folder: Path) -> None:
        """Each is told."""
        for member in self.members:
            member.on_checkpoint(folder)

    def on_end(self, scores: dict[str, Any]) -> None:
        """Each ends."""
        for member in self.members:
            member.on_end(scores)

    def on_error(self, error: BaseException) -> None:
        """Each hears of it."""
        for member in self.members:
            member.on_error(error)
