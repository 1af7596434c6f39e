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
    `parts`, `hits` (a vowel in it), `stratum`, `importance`.
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
    return {
        "process": share,
        "flawed": "o" in text,
        "cluster": round(share * HORIZON),
        "construction": "e" in text,
        "parts": parts,
        "hits": [float(p > 0) for p in parts],
        "stratum": float(parts[0] > 0),
        "importance": parts,
    }
