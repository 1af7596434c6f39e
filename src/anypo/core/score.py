"""`Score`: a reward, and what else its judge says of the trajectory. Needs no torch."""

from __future__ import annotations

from typing import Any


class Score(float):
    """A reward with further facts: `Score(1.0, {"flawed": True})` is 1.0 wherever it is added.

    Facts become columns of the batch's table of trajectories, under their names.
    """

    facts: dict[str, Any]

    def __new__(cls, value: float, facts: dict[str, Any] | None = None) -> Score:
        """The number, with its facts."""
        score = super().__new__(cls, value)
        score.facts = dict(facts or {})
        return score


def reaches(score: float) -> bool:
    """Whether a score says that an answer is exact: its fact `exact`, else at least 1."""
    facts = score.facts if isinstance(score, Score) else {}
    return bool(facts["exact"]) if "exact" in facts else score >= 1.0
