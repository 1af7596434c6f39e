"""The vowel task with what recipes read of an answer: facts, and a right-or-wrong reward."""

from __future__ import annotations

from typing import Any

from anypo.core.score import Score
from anypo.tasks.synthetic import vowels
from anypo.tasks.task import Problems, Row, each

HORIZON, ENOUGH = 8, 2


def task(binary: bool = False) -> Problems:
    """Answer any word with vowels: their share of the eight characters, or whether two are there.

    The facts of an answer are what a judge could say of it: `process` (the share of vowels, also
    where the answer is not right), `flawed` (an `o` among the vowels), `cluster` (how many vowels),
    `construction` (an `e` is there), and lists over the parts of an answer between its `x`:
    `parts`, `steps`, `hits` (a vowel in it), `stratum`, `importance`. Its thought ends with the
    first `x` (`think_end`, `think_length`) and could have ended after its first vowel
    (`valid_length`).
    """
    plain = vowels()

    def score(completion: str, row: Row) -> float:
        text = completion[:HORIZON]
        share = sum(c in "aeiou" for c in text) / HORIZON
        found = float(share * HORIZON >= ENOUGH) if binary else share
        return Score(found, facts(text, share))

    return Problems("words", plain.train, plain.held_out, each(score), HORIZON)


def facts(text: str, share: float) -> dict[str, Any]:
    """What is said of an answer besides its score."""
    parts = [sum(c in "aeiou" for c in part) / HORIZON for part in text.split("x")]
    thought, ended, _ = text.partition("x")
    vowels_at = [k for k, c in enumerate(thought) if c in "aeiou"]
    return {
        "process": share,
        "flawed": "o" in text,
        "cluster": round(share * HORIZON),
        "construction": "e" in text,
        "parts": parts,
        "steps": parts,
        "hits": [float(p > 0) for p in parts],
        "stratum": float(parts[0] > 0),
        "importance": parts,
        "think_end": len(thought) if ended else None,
        "think_length": len(thought) if ended else 0,
        "valid_length": vowels_at[0] + 1 if ended and vowels_at else 0,
    }
