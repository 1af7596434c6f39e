"""The rewards of the friendly tasks, to the number."""

from __future__ import annotations

import pytest

from anypo.tasks.synthetic import first_letter, vowels


def scores(task, completions, word):
    row = {"prompt": word}
    return task.score([word] * len(completions), completions, [row] * len(completions))


def test_first_letter_counts_hits_and_a_quarter_for_near_misses():
    got = scores(first_letter(), ["cccc", "caxx", "c", "", "xxxxcccc", "aaaa", "cccca"], "cab")
    assert got == [1.0, 0.3125, 0.25, 0.0, 0.0, 0.25, 1.0]


def test_vowels_counts_vowels_of_the_horizon():
    assert scores(vowels(), ["aeiouaei", "aexx", "", "ooooooooooo"], "abcd") == [1, 0.25, 0, 1]
    assert scores(vowels(horizon=2), ["oh"], "abcd") == [0.5]


@pytest.mark.parametrize("make", [first_letter, vowels])
def test_words_are_held_out(make):
    task = make(seed=4)
    train, out = ({row["prompt"] for row in side} for side in (task.train, task.held_out))
    assert (len(train), len(out), len(train & out)) == (43, 21, 0)
    assert {row["prompt"] for row in make(seed=5).held_out} != out


def test_first_letter_is_exact_only_when_every_letter_is():
    task = first_letter()
    row = task.train[0]
    first = row["prompt"][0]
    assert task.exact(first * 4, row) and not task.exact(first * 3 + "x", row)
