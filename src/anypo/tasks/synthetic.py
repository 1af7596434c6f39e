"""Tasks that a two-layer character model learns from nothing in seconds: for tests and first looks.

Their rewards are dense, because a random model never meets a sparse one.
"""

from __future__ import annotations

from itertools import product

from anypo.tasks.task import Problems, Row, each, split

LETTERS = "abcd"


def first_letter(*, seed: int = 0, horizon: int = 4, held_out: int = 60) -> Problems:
    """Repeat the first letter of the word: "cab" wants "cccc".

    score = (hits + 0.25·near) / horizon, where a hit is the first letter and near is another
    letter of the word; only the first `horizon` characters count.

    Parameters
    ----------
    seed : which words are held out.
    horizon : most tokens of a completion, and the number of letters wanted.
    held_out : words kept out of training, at most a third of the 64.
    """

    def score(completion: str, row: Row) -> float:
        word = row["prompt"]
        credit = [1.0 if c == word[0] else 0.25 * (c in word) for c in completion[:horizon]]
        return sum(credit) / horizon

    train, out = split(_words(), held_out, seed)
    return Problems("first_letter", train, out, each(score), horizon, {"seed": seed})


def vowels(*, seed: int = 0, horizon: int = 8, held_out: int = 60) -> Problems:
    """Answer any word with as many vowels as fit: score = vowels / horizon, at most 1.

    Parameters
    ----------
    seed : which words are held out.
    horizon : most tokens of a completion, and the number of vowels wanted.
    held_out : words kept out of training, at most a third of the 64.
    """

    def score(completion: str, row: Row) -> float:
        return sum(c in "aeiou" for c in completion[:horizon]) / horizon

    train, out = split(_words(), held_out, seed)
    return Problems("vowels", train, out, each(score), horizon, {"seed": seed})


def _words() -> list[Row]:
    return [{"prompt": "".join(letters)} for letters in product(LETTERS, repeat=3)]
