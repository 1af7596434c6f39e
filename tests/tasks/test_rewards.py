"""Several rewards: their weighted sum, who could not score, bounds, curves, and built-in ones."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from anypo.backends.load_reward import load_reward, parse, written
from anypo.core.errors import UsageError
from anypo.core.score import Score
from anypo.tasks.rewards import Part, Rewards
from anypo.tasks.task import Problems

FILE = """
def exact(completions, answer): return [float(c == a) for c, a in zip(completions, answer)]
def long(completions): return [float(len(c)) for c in completions]
def shy(completions): return [None if "?" in c else 0.5 for c in completions]
def judged(completions): return [{"score": 2.0, "flawed": c} for c in completions]
def near(completions, answer, within): return [float(abs(len(c) - within) < 1) for c in completions]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("several") / "rewards.py"
    path.write_text(FILE)
    return path


def ask(given, completions=("ab", "c?"), ids=None):
    rows = [{"prompt": f"q{i}", "answer": "ab"} for i in range(len(completions))]
    reward = load_reward(given, 20.0)
    reward.check(rows[0])
    return reward([row["prompt"] for row in rows], list(completions), rows, ids)


def shy(completions):
    """Half a point, or nothing to say of a question."""
    return [None if "?" in c else 0.5 for c in completions]


def dumb(completions):
    """Nothing to say of anything."""
    return [None] * len(completions)


# ── what a user writes ───────────────────────────────────────────────────────────────────────────

SPELLINGS = [
    "{f}:exact=1,{f}:long=-0.5",
    "{f}:exact, {f}:long = -5e-1",
    "{f}:exact\n{f}:long=-.5",
    '["{f}:exact", {{"reward": "{f}:long", "weight": -0.5}}]',
    '{{"{f}:exact": 1, "{f}:long": -0.5}}',
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_means_the_same_sum(text, file):
    found = ask(text.format(f=file))
    assert found == [1 - 0.5 * 2, 0 - 0.5 * 2]
    assert found[0].facts == {"rewards/exact": 1.0, "rewards/long": 2.0, "exact": True}
    assert found[1].facts == {"rewards/exact": 0.0, "rewards/long": 2.0, "exact": False}


def test_python_takes_mappings_lists_and_parts(file):
    wanted = [1 + 0.25, 0.0]
    assert ask({f"{file}:exact": 1, shy: 0.5}) == wanted
    assert ask([f"{file}:exact", Part(shy, 0.5)]) == wanted
    assert ask([Part(f"{file}:exact"), {"reward": shy, "weight": 0.5}]) == wanted


def test_a_single_reward_draws_no_curve_of_its_own(file):
    (first, second) = ask(f"{file}:exact")
    assert (first, second) == (1.0, 0.0)
    assert not isinstance(first, Score)
    assert ask(f"{file}:judged=0.5")[0].facts == {"flawed": "ab"}
    assert ask(f"{file}:judged=0.5") == [1.0, 1.0]


def test_what_was_written_can_be_read_again(file):
    given = {f"{file}:exact": 1, f"{file}:long": -0.5}
    assert ask(written(given)) == ask(given)
    assert written(f"{file}:exact") == f"{file}:exact"
    assert written([shy]) == "" == written(shy)


WRONG = [
    ("", "no reward is named"),
    ([], "no reward is named"),
    ({"a.py:f": "much"}, "has the weight 'much': give a number"),
    ({"a.py:f": True}, "has the weight True: give a number"),
    ("a.py:f=0", "must be finite and not 0"),
    ("[1", "are no JSON"),
    ([{"rewards": "a.py:f"}], "did you mean 'rewards'|without 'reward'"),
    ("exakt", "there is no reward 'exakt'.*exact"),
    ("forma:x", "there is no reward 'forma:x'.*format"),
    ("format", "the reward format.*asks for 'pattern'|needs pattern"),
    ("format:(", "is no regular expression"),
    ([{"reward": "think", "colour": 1}], "has no argument 'colour'"),
    ([{"reward": "accuracy", "colour": 1}], "has no option 'colour'"),
    ("cosine", "needs limit: give it limit"),
    ([{"reward": "exact", "low": 1, "high": 0}], "low must be below high"),
    ([{"reward": "exact", "low": "0"}], "low='0' of a reward: give a number"),
    ([{"reward": "exact", "clip": True}], "clip has no effect without low or high"),
    ("exact,exact", "two rewards are called 'exact': give one of them another name"),
    ([3], "3 is no reward function"),
]


@pytest.mark.parametrize("given, words", WRONG, ids=str)
def test_what_is_wrong_is_said_with_the_cure(given, words):
    with pytest.raises(UsageError, match=words):
        ask(given)


def test_two_of_one_name_can_be_told_apart(file):
    found = ask([f"{file}:exact", {"reward": f"{file}:exact", "name": "again", "weight": 2}])
    assert found == [3.0, 0.0]
    assert {"rewards/exact", "rewards/again"} < {*found[0].facts}


def test_arguments_reach_the_function_and_unknown_ones_are_refused(file):
    assert ask([{"reward": f"{file}:near", "within": 2}], ["ab", "abc"]) == [1.0, 0.0]
    with pytest.raises(UsageError, match="has no argument 'withn'; did you mean within"):
        ask([{"reward": f"{file}:near", "withn": 2}])
    with pytest.raises(UsageError, match="asks for 'within'"):
        ask(f"{file}:near")


# ── who could not score ──────────────────────────────────────────────────────────────────────────


def test_a_part_that_says_nothing_is_left_out_of_that_sum_alone(file):
    first, second = ask({f"{file}:exact": 1, shy: 2})
    assert (first, second) == (1 + 2 * 0.5, 0.0)
    assert math.isnan(second.facts["rewards/shy"]) and second.facts["rewards/exact"] == 0.0


def test_a_completion_that_no_part_can_score_is_not_scorable(file):
    first, second = ask({f"{file}:shy": 1, Part(shy, name="too"): 2})
    assert first == 1.5 and math.isnan(second)
    assert all(math.isnan(x) for x in ask([dumb, Part(dumb, name="other")]))


def test_a_required_part_that_says_nothing_makes_the_whole_not_scorable(file):
    first, second = ask([f"{file}:exact", Part(shy, required=True)])
    assert first == 1.5 and math.isnan(second)


def test_no_completions_make_no_scores(file):
    assert load_reward(f"{file}:exact,{file}:long")([], [], []) == []


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────


def test_a_value_outside_its_range_names_function_value_and_place(file):
    given = [{"reward": f"{file}:long", "low": 0, "high": 2}]
    assert ask(given, ["a", "ab"]) == [1.0, 2.0]
    words = f"long in {file} returned 3 for completion 2, outside its declared range from 0 to 2"
    with pytest.raises(UsageError, match=words):
        ask(given, ["a", "abc"])
    with pytest.raises(UsageError, match=r"returned 0.5 .* from 1 to inf"):
        ask(Part(shy, low=1.0), ["a"])


def test_clip_moves_it_to_the_bound_and_keeps_what_was_reported(file):
    found = ask(
        [{"reward": f"{file}:judged", "weight": 3, "high": 1, "clip": True}, f"{file}:exact"]
    )
    assert found == [4.0, 3.0]
    assert found[0].facts["rewards/judged"] == 1.0 and found[0].facts["flawed"] == "ab"


def test_a_part_that_says_nothing_is_not_outside_its_range():
    assert math.isnan(ask(Part(shy, low=0.0, high=1.0), ["?"])[0])


def test_two_parts_may_not_report_one_fact(file):
    with pytest.raises(UsageError, match="two rewards report the fact 'flawed'"):
        ask([f"{file}:judged", {"reward": f"{file}:judged", "name": "again"}])


# ── what a run keeps of them ─────────────────────────────────────────────────────────────────────


def test_the_version_follows_the_source(tmp_path):
    path = tmp_path / "r.py"

    def version() -> str:
        return load_reward(f"{path}:f").settings()["f"]["version"]

    path.write_text("def f(completions): return [1] * len(completions)\n")
    before = version()
    assert before == version() and len(before) == 64
    path.write_text("def f(completions): return [2] * len(completions)\n")
    assert version() != before
    same, other = load_reward(shy).settings(), load_reward(dumb).settings()
    assert same["shy"]["version"] == load_reward(shy).settings()["shy"]["version"]
    assert same["shy"]["version"] != other["dumb"]["version"]
    few, many = (load_reward([{"reward": "repetition", "n": n}]).settings() for n in (2, 3))
    assert few["repetition"]["version"] != many["repetition"]["version"]


def test_settings_are_plain_and_name_each_part():
    said = load_reward([Part(shy, 0.5, low=0.0), "exact"]).settings()
    assert said["shy"] | {"version": ""} == {
        "source": "the reward function shy",
        "weight": 0.5,
        "version": "",
        "low": 0.0,
        "high": "inf",
        "clip": False,
    }
    assert said["exact"]["source"] == "the reward exact"


def test_the_first_part_says_what_is_exact_and_the_others_are_not_asked():
    asked = []

    def right(completions):
        return [float(c == "ab") for c in completions]

    def costly(completions):
        asked.append(completions)
        return [5.0] * len(completions)

    row = {"prompt": "q"}
    task = Problems("t", (row,), (), load_reward([right, costly]), 4)
    assert task.exact("ab", row) and not task.exact("x", row)
    assert not asked
    assert task.score(["q"], ["x"], [row])[0] == 5.0


def test_a_function_may_say_itself_what_is_exact():
    def graded(completions):
        return [{"score": 0.3, "exact": c == "ab"} for c in completions]

    row = {"prompt": "q"}
    task = Problems("t", (row,), (), load_reward(graded), 4)
    assert task.exact("ab", row) and not task.exact("x", row)


def test_names_and_sources_must_pair():
    with pytest.raises(ValueError):
        Rewards(parse("exact,think"), [])


# ── built-in ones ────────────────────────────────────────────────────────────────────────────────

BUILT_IN = [
    ("exact", " ab\n", 1.0),
    ("exact", "ab.", 0.0),
    ("format:<a>.*</a>", "<a>1\n2</a> ", 1.0),
    ("format:<a>.*</a>", "so <a>1</a>", 0.0),
    ("think", "<think>why</think> 4", 1.0),
    ("think", "<think>why</think>", 0.0),
    ("think", "<think> </think> 4", 0.0),
    ("think", "4 <think>why</think>", 0.0),
    ("think", "<think>why</think> 4 </think>", 0.0),
    ("think", "<think><think>why</think> 4", 0.0),
    ("repetition", "a b c d", 0.0),
    ("repetition", "a b", 0.0),
    # trigrams aba bab aba bab: 2 of 4 are distinct
    ("repetition", "a b A b a b", -0.5),
    ([{"reward": "repetition", "n": 1}], "a a a a", -0.75),
]


@pytest.mark.parametrize("given, completion, wanted", BUILT_IN, ids=str)
def test_a_built_in_reward(given, completion, wanted):
    assert ask(given, [completion]) == [wanted]


def test_overlong_falls_linearly_over_its_buffer():
    given = [{"reward": "overlong", "limit": 10, "buffer": 4}]
    ids = [[0] * n for n in (6, 7, 8, 10, 12)]
    assert ask(given, ["x"] * 5, ids) == [0.0, -0.25, -0.5, -1.0, -1.0]


def test_accuracy_reads_the_answer_from_the_first_column_that_has_it():
    rows = [{"prompt": "q", "answer": "1/2"}, {"prompt": "q", "solution": "3", "answer": "4"}]
    reward = load_reward("accuracy")
    reward.check(rows[0])
    assert reward(["q", "q"], ["0.5", "3"], rows) == [1.0, 1.0]
    assert reward.answer("so 0.5") == "1/2"
    with pytest.raises(UsageError, match="accuracy compares with a column"):
        reward.check(["prompt", "colour"])


def test_cosine_pays_short_right_answers_and_forgives_long_wrong_ones():
    """Half a cosine from begin to end: at half the limit it is halfway."""
    reward = load_reward([{"reward": "cosine", "limit": 8}])
    rows = [{"prompt": "q", "answer": "3"}] * 5
    ids = [[0] * n for n in (4, 2, 4, 0, 8)]
    found = reward(["q"] * 5, ["3", "3", "4", "4", "3"], rows, ids)
    quarter = 1 + 0.5 * (1 + math.cos(math.pi / 4))
    assert found == pytest.approx([1.5, quarter, -5.0, -10.0, -10.0], abs=1e-12)


def test_a_regular_expression_that_hangs_is_stopped():
    with pytest.raises(UsageError, match="the reward format took more than 1 s"):
        load_reward([{"reward": "format:(a+)+b", "timeout": 1}])(
            ["q"], ["a" * 40 + "c"], [{"prompt": "q"}]
        )
