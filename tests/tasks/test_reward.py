"""Reward functions: how they are called, and every way in which they go wrong."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from anypo.core.errors import UsageError
from anypo.tasks.reward import Reward
from anypo.tasks.reward_call import ground_truth

FILE = """
import asyncio, math, os, sys, time
from helper_next_door import WEIGHT
CALLS = []
def length(completions, **columns): return [WEIGHT * len(c) for c in completions]
async def later(prompts, completions, answer):
    await asyncio.sleep(0)
    return [float(c == a) for c, a in zip(completions, answer)]
def count(completions):
    CALLS.append(len(completions))
    return [len(CALLS)] * len(completions)
def raises(completions):
    x = 1
    raise ValueError("cannot read " + completions[0])
def hangs(completions): time.sleep(60)
def leaves(completions): os._exit(3)
def exits(completions): sys.exit(0)
def none(completions): return [None, math.nan, 1][: len(completions)]
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    assert not kwargs
    return {"score": float(solution_str == ground_truth) + extra_info["bonus"], "acc": 1}
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rewards")
    (folder / "helper_next_door.py").write_text("WEIGHT = 0.5\n")
    (folder / "rewards.py").write_text(FILE)
    return folder / "rewards.py"


def ask(function, completions=("ab", "c"), rows=None, seconds=20.0, ids=None):
    rows = rows or [{"prompt": f"q{i}", "answer": "c"} for i in range(len(completions))]
    reward = Reward(function, seconds)
    return reward([row["prompt"] for row in rows], list(completions), rows, ids)


# ── how a function is called ─────────────────────────────────────────────────────────────────────


def test_a_file_function_gets_its_columns_by_name(file):
    assert ask(f"{file}:length") == [1.0, 0.5]


def test_an_async_function_is_awaited(file):
    assert ask(f"{file}:later") == [0.0, 1.0]


def test_a_file_function_keeps_its_state_between_calls(file):
    reward, rows = Reward(f"{file}:count"), [{"prompt": "q"}]
    assert [reward(["q"], ["a"], rows) for _ in range(3)] == [[1.0], [2.0], [3.0]]


def test_a_callable_gets_prompts_completions_and_every_column():
    seen = {}

    def spy(prompts, completions, **columns):
        seen.update(columns, prompts=prompts, completions=completions)
        return [1, 2]

    rows = [{"prompt": "p", "a": 1, "completion": "gold"}, {"prompt": "q", "a": 2}]
    assert ask(spy, ["x", "y"], rows) == [1.0, 2.0]
    assert seen == {"prompts": ["p", "q"], "completions": ["x", "y"], "a": [1, 2]}


def test_a_function_gets_only_what_it_takes():
    assert ask(lambda completions: [len(c) for c in completions]) == [2.0, 1.0]


def test_completion_ids_are_given_to_those_that_take_them():
    def lengths(completion_ids, **rest):
        return [len(ids) for ids in completion_ids]

    assert ask(lengths, ids=[torch.tensor([5, 6, 7]), [8]]) == [3.0, 1.0]
    with pytest.raises(UsageError, match="'completion_ids', which this run does not give"):
        ask(lengths)


def test_chat_prompts_get_chat_completions():
    def contents(prompts, completions):
        assert prompts[0][0]["role"] == "user"
        assert completions[0] == [{"role": "assistant", "content": "ab"}]
        return [len(c[0]["content"]) for c in completions]

    rows = [{"prompt": [{"role": "user", "content": "hi"}]}] * 2
    assert ask(contents, rows=rows) == [2.0, 1.0]


def test_verls_signature_is_called_once_for_each_completion(file):
    rows = [
        {
            "prompt": "q",
            "data_source": "s",
            "reward_model": {"style": "rule", "ground_truth": "ab"},
            "extra_info": {"bonus": bonus},
        }
        for bonus in (0.25, 0.5)
    ]
    scores = ask(f"{file}:compute_score", rows=rows)
    assert scores == [1.25, 0.5]
    assert [s.facts for s in scores] == [{"acc": 1}] * 2  # through the child process


def test_a_function_may_return_facts_beside_its_scores():
    def judged(completions):
        return [{"score": 1, "flawed": True}, 0.5]

    first, second = ask(judged)
    assert (first, first.facts) == (1.0, {"flawed": True})
    assert second == 0.5 and not hasattr(second, "facts")


def test_verls_score_may_be_async_and_a_plain_number():
    async def compute_score(data_source, solution_str, ground_truth):
        return solution_str == ground_truth

    rows = [{"prompt": "q", "ground_truth": "c"}] * 2
    assert ask(compute_score, rows=rows) == [0.0, 1.0]


def test_a_verl_dict_without_score_is_refused():
    def compute_score(solution_str, ground_truth):
        return {"acc": 1}

    with pytest.raises(UsageError, match="a dict without 'score'"):
        ask(compute_score, rows=[{"prompt": "q", "ground_truth": "c"}] * 2)


def test_the_ground_truth_is_verls_or_a_column():
    assert ground_truth({"reward_model": {"ground_truth": 3}, "ground_truth": 4}) == 3
    assert ground_truth({"ground_truth": 4}) == 4
    assert ground_truth({"reward_model": None}) is None


def test_no_completions_are_not_scored():
    assert Reward(lambda completions: 1 / 0)([], [], []) == []


# ── what it may return ───────────────────────────────────────────────────────────────────────────


def test_none_and_nan_are_not_scorable(file):
    for function in (f"{file}:none", lambda completions: [None, float("nan"), 1]):
        first, second, third = ask(function, ["a", "b", "c"])
        assert math.isnan(first) and math.isnan(second) and third == 1.0


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 0.5], dtype=np.float32),
        torch.tensor([1.0, 0.5]),
        (True, np.float64(0.5)),
        [torch.tensor(1.0), 0.5],
    ],
)
def test_numbers_of_any_library_are_numbers(values):
    assert ask(lambda completions: values) == [1.0, 0.5]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([1.0], "returned 1 values for 2 completions"),
        ([1.0, 2.0, 3.0], "returned 3 values for 2 completions"),
        ([1.0, "0.5"], r"returned '0.5' \(of type str\) as a reward: return a finite number"),
        ([1.0, np.str_("1")], r"returned '1' \(of type str_\) as a reward"),
        ([1.0, float("inf")], "returned 'inf' as a reward: return a finite number"),
        ([1.0, -float("inf")], "returned '-inf' as a reward"),
        ([1.0, [2.0]], r"returned '\[2.0\]' \(of type list\) as a reward"),
        ([1.0, 10**5000], "returned 'inf' as a reward"),
        ("12", "returned a str, not a list"),
        (None, "returned None, not a list"),
        (1.0, "returned a float, not a list"),
        ({0: 1.0, 1: 2.0}, "returned a dict, not a list"),
    ],
)
def test_what_is_no_list_of_numbers_is_refused(values, complaint):
    def judge(completions):
        return values

    with pytest.raises(UsageError, match=f"the reward function .*judge {complaint}"):
        ask(judge)


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────


def test_a_function_that_raises_is_named_with_the_line_and_the_cure(file):
    line = 1 + FILE.split("\n").index('    raise ValueError("cannot read " + completions[0])')
    with pytest.raises(UsageError) as error:
        ask(f"{file}:raises")
    assert str(error.value) == (
        f"the reward function raises in {file} raised ValueError: cannot read ab (line {line}): "
        "mend it, or let it return None for a completion that it cannot score"
    )


def test_a_callable_that_raises_is_named_with_the_line():
    def bad(completions):
        return [1 / 0]

    line = bad.__code__.co_firstlineno + 1
    with pytest.raises(UsageError, match=rf"bad raised ZeroDivisionError: .* \(line {line}\)"):
        ask(bad)


def test_a_callable_that_needs_the_main_thread_is_told_how_to_get_one():
    def alarm(completions):
        raise ValueError("signal only works in main thread of the main interpreter")

    with pytest.raises(UsageError, match=r"name it as file\.py:function"):
        ask(alarm)


def test_a_file_function_that_hangs_is_stopped(file):
    reward, begin = Reward(f"{file}:hangs", seconds=0.3), time.monotonic()
    with pytest.raises(UsageError, match=r"hangs in .*rewards.py took more than 0.3 s .*timeout="):
        reward(["q"], ["a"], [{"prompt": "q"}])
    assert time.monotonic() - begin < 15


def test_a_callable_that_hangs_is_left_behind():
    begin = time.monotonic()
    with pytest.raises(UsageError, match=r"sleeper took more than 0\.2 s"):

        def sleeper(completions):
            time.sleep(5)

        ask(sleeper, seconds=0.2)
    assert time.monotonic() - begin < 4


def test_a_function_that_ends_its_process_is_no_end_of_the_run(file):
    with pytest.raises(UsageError, match=r"leaves in .* ended its process \(exit status 3\)"):
        ask(f"{file}:leaves")
    with pytest.raises(UsageError, match=r"exits in .* raised SystemExit: 0"):
        ask(f"{file}:exits")

    def quits(completions):
        raise SystemExit(0)

    with pytest.raises(UsageError, match="quits raised SystemExit: 0"):
        ask(quits)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_out_that_is_no_time_is_refused(seconds):
    with pytest.raises(UsageError, match="give timeout in seconds"):
        Reward(len, seconds)


# ── what cannot be loaded ────────────────────────────────────────────────────────────────────────


def complaint(source, columns=("prompt",)):
    with pytest.raises(UsageError) as error:
        Reward(source).check(columns)
    return str(error.value)


@pytest.mark.parametrize("source", ["rewards.py", "rewards.py:", ":length"])
def test_a_source_without_file_and_function_is_refused(source):
    assert complaint(source).endswith("names no reward function: write file.py:function")


def test_an_absent_file_offers_the_nearest(file):
    said = complaint(f"{file.parent / 'reward.py'}:length")
    assert said.endswith("with a reward function; did you mean rewards.py?")


def test_an_absent_function_offers_the_nearest(file):
    assert complaint(f"{file}:lenght").endswith("no function 'lenght'; did you mean length?")
    assert "it has compute_score, count, exits" in complaint(f"{file}:zzz")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(:\n", r"SyntaxError: .* \(line 1\)"),
        ("x = 1\nraise RuntimeError('no')\n", r"RuntimeError: no \(line 2\)"),
        ("import no_such_library\n", r"No module named 'no_such_library' \(line 1\)"),
        ("import sys\nsys.exit(4)\n", r"SystemExit: 4 \(line 2\)"),
        ("f = 3\n", r"has no function 'f'$"),
        ("def f(c, /): return [1]\n", "by position only: let it take them by name"),
    ],
)
def test_a_bad_file_says_what_is_wrong_with_it(tmp_path, text, says):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(UsageError, match=says):
        Reward(f"{tmp_path / 'bad.py'}:f").check(["prompt"])


def test_a_column_that_is_not_there_is_named_before_training(file):
    said = complaint(f"{file}:later", ["prompt", "answers"])
    assert "asks for 'answer', which is no column of the dataset (columns: answers)" in said
    assert said.endswith("; did you mean answers?")
    Reward(f"{file}:later").check(["prompt", "answer"])
    Reward(f"{file}:length").check(["prompt"])


def test_verls_signature_needs_a_ground_truth(file):
    assert "asks for 'ground_truth'" in complaint(f"{file}:compute_score", ["prompt", "answer"])
    Reward(f"{file}:compute_score").check(["prompt", "reward_model"])
