"""What a completion answers, for votes to be counted by: as the task itself reads it."""

from __future__ import annotations

import pytest

from anypo.backends.math_verify import MathReward
from anypo.backends.reasoning_gym import Scores
from anypo.tasks.task import Problems, each, exact_answer

ROW = {"prompt": "?", "answer": "1"}


@pytest.mark.parametrize(
    ("same", "other"),
    [
        (
            [
                "<answer>4</answer>",
                "so <answer> 4\n</answer>.",
                "<answer>3</answer><answer>4</answer>",
            ],
            "5",
        ),
        (["4", " 4\n"], "<answer>5</answer>"),
        (["<answer></answer>"], "4"),
    ],
)
def test_of_reasoning_gym_it_is_what_stands_in_the_last_tags(same, other):
    task = Problems("gym", (ROW,), (), Scores(("chain_sum", "{}", 1, 0), False, 1.0), 8)
    found = {task.answer(text) for text in same}
    assert len(found) == 1
    assert task.answer(other) not in found


@pytest.mark.parametrize(
    ("same", "other"),
    [
        (
            [r"so $x = \frac{1}{2}$", "the answer is 0.5", r"\boxed{\frac12}", "first 3, then 1/2"],
            "2",
        ),
        (["1,000", "$1000$"], "100"),
        (["no idea", " no idea "], "7"),
    ],
)
def test_of_mathematics_equal_numbers_are_one_answer(same, other):
    task = Problems("maths", (ROW,), (), MathReward(), 8)
    found = {task.answer(text) for text in same}
    assert len(found) == 1
    assert task.answer(other) not in found


def test_else_it_is_the_whole_text():
    assert Problems("p", (ROW,), (), each(exact_answer), 8).answer(" so 4.\n") == "so 4."
