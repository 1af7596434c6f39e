"""The one exception type whose message is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Something a user can mend: the message says what is wrong and what to do about it.

    The command line prints the message alone and exits with status 2; a traceback is for defects.
    """


class RecipeError(UsageError):
    """A recipe that cannot be built: the sentence, and the method that the user named."""

    def __init__(self, method: str, sentence: str) -> None:
        super().__init__(f"{method}: {sentence}")
        self.sentence = sentence


def nearest(word: str, candidates: Iterable[str], most: int = 3) -> str:
    """`": did you mean a, b?"`, or an empty string when nothing is near."""
    near = difflib.get_close_matches(word, list(candidates), n=most, cutoff=0.5)
    return f"; did you mean {', '.join(near)}?" if near else ""
