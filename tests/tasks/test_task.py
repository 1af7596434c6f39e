"""The order of rows, and the split that keeps held-out questions out of training."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anypo.core.errors import UsageError
from anypo.tasks.task import Problems, each, exact_answer, mirror, order, question, split

SUMS = [f"{a} + {b}" for a in range(10) for b in range(10)]


def rows_of(texts):
    return [{"prompt": text, "n": i} for i, text in enumerate(texts)]


def texts(rows):
    return {question(row["prompt"]) for row in rows}


def images(rows):
    return {mirror(question(row["prompt"])) for row in rows}


def test_every_epoch_visits_every_row_once_in_another_order():
    epochs = [[order(7, 7 * epoch + k, seed=3) for k in range(7)] for epoch in range(4)]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_the_order_is_a_function_of_the_seed_alone():
    first = [order(50, k, seed=1) for k in range(120)]
    assert [order(50, k, seed=1) for k in reversed(range(120))] == first[::-1]
    assert [order(50, k, seed=2) for k in range(120)] != first


def test_mirror_images_have_the_same_tokens_with_or_without_spaces():
    assert mirror("Calculate 3 + 5.") == mirror("Calculate 5 + 3.") == mirror("Calculate 5+3.")
    assert mirror("Calculate 3 + 5.") != mirror("Calculate 3 * 5.")
    assert mirror("35") != mirror("53")


def test_sums_are_split_with_their_mirror_images():
    train, out = split(rows_of(SUMS), held_out=31, seed=0)
    assert (len(train), len(out)) == (69, 31)
    assert not images(train) & images(out)
    assert {"3 + 5", "5 + 3"} <= texts(train) or {"3 + 5", "5 + 3"} <= texts(out)


def test_the_seed_chooses_what_is_held_out_and_the_order_of_rows_does_not():
    _, out = split(rows_of(SUMS), 30, seed=0)
    assert texts(split(rows_of(SUMS[::-1]), 30, seed=0)[1]) == texts(out)
    assert texts(split(rows_of(SUMS), 30, seed=1)[1]) != texts(out)


def test_at_most_a_third_is_held_out():
    train, out = split(rows_of("abcdefgh"), held_out=60, seed=0)
    assert (len(train), len(out)) == (6, 2)
    assert split(rows_of("ab"), held_out=60) == (tuple(rows_of("ab")), ())


def test_nothing_is_held_out_on_request():
    assert split(rows_of("abcdef"), held_out=0) == (tuple(rows_of("abcdef")), ())


def test_equal_rows_are_kept_once_and_rows_of_one_question_stay_together():
    rows = [{"prompt": p, "answer": a} for p in "abcdefghi" for a in (1, 2)]
    train, out = split(rows + rows, held_out=3, seed=0)
    assert len(train) + len(out) == 18
    assert set(Counter(row["prompt"] for row in (*train, *out)).values()) == {2}
    assert len(texts(out)) == 3 and not texts(train) & texts(out)


def test_both_sides_keep_the_order_of_the_rows():
    for side in split(rows_of(SUMS), 20, seed=0):
        assert [row["n"] for row in side] == sorted(row["n"] for row in side)


def test_images_are_parted_only_where_nothing_else_can_be_held_out():
    board = [
        " ".join("XO"[(k >> i) & 1] for i in range(6)) for k in range(64) if k.bit_count() == 3
    ]
    assert len({mirror(text) for text in board}) == 1
    train, out = split(rows_of(board), held_out=5, seed=0)
    assert len(out) == 5 and not texts(train) & texts(out)


def test_an_odd_number_is_reached_if_one_question_is_its_own_image():
    pairs = [f"{a} + {b}" for a in range(5) for b in range(5) if a != b]
    assert len(split(rows_of(["7 + 7", *pairs]), 5, seed=0)[1]) == 5
    assert len(split(rows_of(pairs), 5, seed=0)[1]) == 4
    for seed in range(20):  # whatever the order in which they are drawn
        assert len(split(rows_of(["7 + 7", *pairs]), 4, seed)[1]) == 4


def test_a_chat_is_split_by_its_roles_and_contents():
    chats = [[{"role": "user", "content": text}] for text in SUMS]
    train, out = split([{"prompt": chat} for chat in chats], 30, seed=0)
    assert len(out) == 30 and not images(train) & images(out)
    assert question(chats[0]) == "user: 0 + 0"


@pytest.mark.parametrize("held_out", [-1, 2.5])
def test_a_bad_number_of_held_out_questions_is_refused(held_out):
    with pytest.raises(UsageError, match="give 0 or more"):
        split(rows_of("abc"), held_out)


ANY_TEXTS = st.lists(
    st.lists(st.sampled_from("1 2 3 + * x".split()), min_size=1, max_size=4).map(" ".join),
    max_size=60,
)


@given(ANY_TEXTS, st.integers(0, 12), st.integers(0, 99))
def test_no_split_shares_a_question_or_loses_one(texts_, held_out, seed):
    rows = rows_of(texts_)
    train, out = split(rows, held_out, seed)
    assert not texts(train) & texts(out)
    assert sorted(row["n"] for row in (*train, *out)) == [row["n"] for row in rows]
    wanted = min(held_out, len(set(texts_)) // 3)
    assert len(texts(out)) <= wanted
    sizes = Counter(mirror(text) for text in set(texts_)).values()
    reached = {0}
    for size in sizes:
        reached |= {total + size for total in reached}
    if wanted in reached:
        assert len(texts(out)) == wanted and not images(train) & images(out)


@given(ANY_TEXTS, st.integers(0, 99))
def test_every_question_can_be_held_out(texts_, seed):
    rows = rows_of(sorted(set(texts_)))
    train, out = split(rows, len(rows) // 3, seed)
    assert split(rows, len(rows) // 3, seed) == (train, out)


def problems(**more):
    row = {"prompt": "2 + 2", "answer": "4"}
    return Problems("sums", (row,), (), each(exact_answer), **({"horizon": 8} | more))


def test_an_exact_answer_is_the_number_and_nothing_else():
    task = problems()
    row = task.train[0]
    asked = [row["prompt"]] * 4
    assert task.score(asked, ["4", " 4\n", "4.", "The answer is 4"], [row] * 4) == [1, 1, 0, 0]
    assert task.exact("4", row) and not task.exact("44", row)


def test_a_score_of_nan_is_not_exact():
    task = Problems("none", ({"prompt": "x"},), (), each(lambda c, r: float("nan")), 8)
    assert not task.exact("x", task.train[0])


def test_settings_are_json_and_say_what_the_task_was():
    assert problems(details={"seed": 3}).settings() == {
        "name": "sums",
        "kind": "language",
        "train": 1,
        "held_out": 0,
        "horizon": 8,
        "seed": 3,
    }


@pytest.mark.parametrize("horizon", [0, -4, "8"])
def test_no_room_for_an_answer_is_refused(horizon):
    with pytest.raises(UsageError, match="positive number of tokens"):
        problems(horizon=horizon)
