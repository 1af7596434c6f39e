"""Rewards that need no file: `--reward exact`, `--reward format:REGEX`, and others by name.

Each is an ordinary reward function, so it runs in a process that can be killed: a regular
expression can hang on a hostile answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from anypo.core.errors import UsageError

NAMES = ("exact", "format", "think", "repetition", "overlong")


def exact(completions: Sequence[Any], answer: Sequence[Any], **columns: Any) -> list[float]:
    """1 for a completion that is the row's `answer` and nothing else but white space, else 0."""
    pairs = zip(completions, answer)
    return [float(text(c).strip() == str(a).strip()) for c, a in pairs]


def format(completions: Sequence[Any], pattern: str) -> list[float]:
    """1 for a completion that a regular expression matches from beginning to end, else 0.

    A dot matches line breaks as well. White space around the completion does not count.
    """
    try:
        wanted = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UsageError(f"format:{pattern} is no regular expression ({error})") from None
    return [float(wanted.fullmatch(text(c).strip()) is not None) for c in completions]


def think(
    completions: Sequence[Any], open: str = "<think>", close: str = "</think>"
) -> list[float]:
    """1 for a thought between marks, once and first, followed by an answer, else 0."""
    return [float(_thinks(text(c).strip(), open, close)) for c in completions]


def _thinks(said: str, open: str, close: str) -> bool:
    thought, closed, answer = said.removeprefix(open).partition(close)
    once = open not in thought + answer and close not in answer
    return bool(said.startswith(open) and closed and once and thought.strip() and answer.strip())


def repetition(completions: Sequence[Any], n: int = 3) -> list[float]:
    """`distinct/all − 1` of a completion's n-grams of words: 0 without repetition, towards −1 with.

    Its weight is the largest penalty. A completion of fewer than n words gets 0.
    Reference: repetition penalty of 2502.03373, in the form of a share of n-grams.
    """
    if not (isinstance(n, int) and n >= 1):
        raise UsageError(f"n={n!r}: repetition counts n-grams of at least 1 word")
    return [_repeats(text(c).lower().split(), n) for c in completions]


def _repeats(words: list[str], n: int) -> float:
    grams = list(zip(*(words[i:] for i in range(n))))
    return len(set(grams)) / len(grams) - 1 if grams else 0.0


def overlong(
    completion_ids: Sequence[Sequence[int]], limit: int, buffer: float = 0.2
) -> list[float]:
    """`clip((limit − buffer − n)/buffer, −1, 0)` of a completion of n tokens.

    `buffer` is in tokens, or a share of `limit` when below 1. As part of a recipe, where the limit
    is the run's horizon, this is the piece `Overlong`. Reference: DAPO, 2503.14476, equation 13.
    """
    if not (limit > 0 and 0 < buffer <= limit):
        raise UsageError(f"limit={limit}, buffer={buffer}: both must be above 0, limit the larger")
    wide = buffer if buffer >= 1 else buffer * limit
    return [min(0.0, max(-1.0, (limit - wide - len(ids)) / wide)) for ids in completion_ids]


def text(completion: Any) -> str:
    """What a completion says: the text, or the contents of its messages."""
    if isinstance(completion, str):
        return completion
    return "\n".join(message["content"] for message in completion)
