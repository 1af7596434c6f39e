"""Prompts that say something of what is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Sampling, require
from anypo.core.request import Request

if TYPE_CHECKING:
    from anypo.core.recipe import Recipe


@dataclass(frozen=True)
class Hint(Sampling):
    """Write the number that is known of a prompt, rounded, at the end of its question.

    Parameters: `state` (the named state, a number for each prompt, default `length_target`), `text`
    (what is added; `{}` stands for the number). A prompt of which no number is known stays as it
    is. Use as `Groups(8) >> Hint()`. Reference: LAPO, 2507.15758, whose wording is not ours.
    Its own piece because nothing else writes into a prompt.
    """

    state: str = "length_target"
    text: str = " Answer in about {} tokens."

    def __post_init__(self) -> None:
        require(self.text.count("{}") == 1, self, "text", "a text with one {} for the number")

    def check(self, recipe: Recipe) -> None:
        """Some piece must know the number."""
        if not any(self.state in piece.init() for piece in recipe.pieces):
            raise UsageError(f"Hint(state={self.state!r}): no piece of the recipe keeps this state")

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """The same, with hints for all prompts of which something is known."""
        known = wanted.state.get(self.state, {})
        hints = {int(prompt): self.text.format(round(x)) for prompt, x in known.items()}
        return None if rounds else replace(wanted, hints={**wanted.hints, **hints})
