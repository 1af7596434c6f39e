"""Tasks out of libraries and files: reasoning-gym, math-verify, parquet, and `load_task`."""

from __future__ import annotations

import json
import math
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anypo.backends import math_verify, reasoning_gym
from anypo.backends.load_task import load_task, task_names
from anypo.backends.math_verify import math_score
from anypo.backends.parquet import read_rows, write_rows
from anypo.backends.reasoning_gym import reasoning_gym_task
from anypo.core.errors import UsageError
from anypo.tasks.task import mirror, question


@pytest.fixture(scope="module", autouse=True)
def workers():
    yield
    math_verify._worker().close()
    reasoning_gym._worker().close()


@pytest.fixture(scope="module")
def arithmetic():
    return load_task("arithmetic", seed=0)


def texts(rows):
    return {question(row["prompt"]) for row in rows}


def says(pattern, *arguments, **options):
    with pytest.raises(UsageError, match=pattern):
        load_task(*arguments, **options)


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────


def test_arithmetic_has_every_one_digit_sum_and_product(arithmetic):
    rows = [*arithmetic.train, *arithmetic.held_out]
    asked = {row["question"]: row["answer"] for row in rows}
    sums = {f"Calculate {a} + {b}.": str(a + b) for a in range(11) for b in range(11)}
    products = {f"Calculate {a} * {b}.": str(a * b) for a in range(11) for b in range(11)}
    assert len(rows) == len(asked) and asked == sums | products


def test_arithmetic_asks_for_the_number_only(arithmetic):
    row = arithmetic.train[0]
    content = f"{row['question']}\nAnswer with only the number."
    assert row["prompt"] == [{"role": "user", "content": content}]
    answers = [row["answer"], f" {row['answer']}\n", f"{row['answer']}.", "It is 3", ""]
    got = arithmetic.score([row["prompt"]] * 5, answers, [row] * 5)
    assert got == [1, 1, 0, 0, 0] and arithmetic.horizon == 8


def test_arithmetic_holds_out_sixty_with_their_mirror_images(arithmetic):
    train, out = texts(arithmetic.train), texts(arithmetic.held_out)
    assert (len(train), len(out)) == (182, 60)
    assert not {mirror(text) for text in train} & {mirror(text) for text in out}


def test_the_seed_chooses_the_held_out_sums_and_nothing_else(arithmetic):
    again, other = load_task("arithmetic", seed=0), load_task("arithmetic", seed=1)
    assert again.train == arithmetic.train and again.held_out == arithmetic.held_out
    assert texts(other.held_out) != texts(arithmetic.held_out)
    both = [texts(task.train) | texts(task.held_out) for task in (arithmetic, other)]
    assert both[0] == both[1]


# ── reasoning-gym ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dataset", ["chain_sum", "gcd", "n_queens", "spell_backward", "countdown"])
def test_no_question_text_is_shared(dataset):
    task = load_task(f"reasoning_gym:{dataset}", size=60, held_out=15)
    train, out = texts(task.train), texts(task.held_out)
    assert not train & out and len(out) == 15
    assert len(train) == len(task.train) and len(train) + len(out) <= 60


def test_parameters_and_instruction_reach_the_dataset():
    more = {"min_terms": 3, "max_terms": 3, "min_digits": 1, "max_digits": 1}
    task = load_task("reasoning_gym:chain_sum", size=30, instruction="Digits only.", **more)
    for row in task.train:
        terms = row["question"].split(":")[1].strip(" =").replace("-", "+").split("+")
        assert [len(term.strip()) for term in terms] == [1, 1, 1]
        assert row["prompt"][0]["content"] == row["question"] + "\nDigits only."
    assert task.horizon == 64 and task.settings()["params"] == more


def test_a_repeated_question_is_kept_once():
    more = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    task = load_task("reasoning_gym:chain_sum", size=400, held_out=0, **more)
    assert len(texts(task.train)) == len(task.train) < 400


def test_exact_credit_is_all_or_nothing_and_partial_credit_the_datasets_own():
    exact = reasoning_gym_task("chain_sum", size=6)
    partial = reasoning_gym_task("chain_sum", size=6, partial=True)
    row = exact.train[0]
    right = row["answer"]
    tried = [right, f"so <answer> {right} </answer>.", f"It is {right}", "<answer>no</answer>", ""]
    asked = [[row["prompt"]] * 5, tried, [row] * 5]
    assert exact.score(*asked) == [1, 1, 0, 0, 0]
    long = len(right) / len(f"It is {right}")
    assert partial.score(*asked) == pytest.approx([1, 1, long, 0, 0])
    assert exact.exact(right, row) and not exact.exact(f"It is {right}", row)


def test_a_dataset_without_one_answer_is_scored_by_its_own_rule():
    task = reasoning_gym_task("countdown", size=4, held_out=0)
    row = task.train[0]
    tried = [row["answer"], f"(({row['answer']}))", "1", "((("]
    assert task.score([row["prompt"]] * 4, tried, [row] * 4) == [1, 1, 0, 0]


def test_a_scorer_that_raises_gives_nothing():
    task = reasoning_gym_task("prime_factorization", size=3, held_out=0)
    row = task.train[0]
    assert task.score([row["prompt"]] * 2, ["abc", row["answer"]], [row] * 2) == [0, 1]


def test_a_scorer_that_takes_anything_is_not_believed():
    task = reasoning_gym_task("game_of_life_halting", size=8, held_out=0)
    rows = task.train
    told = {row["answer"] for row in rows}
    assert told == {"True", "False"}
    for answer in ("True", "False", "perhaps"):
        got = task.score([row["prompt"] for row in rows], [answer] * len(rows), rows)
        assert got == [float(row["answer"] == answer) for row in rows]


def test_a_scorer_that_hangs_gives_nothing_and_the_next_one_works():
    task = reasoning_gym_task("countdown", size=3, held_out=0, timeout=3.0)
    row, begin = task.train[0], time.monotonic()
    tried = ["9**9**9**9", row["answer"]]
    assert task.score([row["prompt"]] * 2, tried, [row] * 2) == [0, 1]
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("dataset", ["list_functions", "isomorphic_strings"])
def test_items_do_not_depend_on_set_order_or_global_random_state(dataset):
    first = reasoning_gym_task(dataset, size=12, seed=5)
    reasoning_gym._worker().close()
    again = reasoning_gym_task(dataset, size=12, seed=5)
    assert first.train == again.train and first.held_out == again.held_out
    assert texts(reasoning_gym_task(dataset, size=12, seed=6).train) != texts(first.train)


def test_composite_takes_its_parts_as_mappings():
    parts = [{"name": name, "weight": 1.0, "config": {}} for name in ("chain_sum", "gcd")]
    task = load_task("reasoning_gym:composite", datasets=parts, size=12, held_out=0)
    kinds = {"gcd" if "Greatest Common" in text else "sum" for text in texts(task.train)}
    row = task.train[0]
    assert kinds == {"gcd", "sum"} and task.exact(row["answer"], row)


def test_what_reasoning_gym_does_not_take_is_named_with_the_nearest():
    says("no dataset 'chain_sun'; did you mean chain_sum", "reasoning_gym:chain_sun")
    says("no parameter 'min_term'; did you mean min_terms", "reasoning_gym:chain_sum", min_term=2)
    says("no parameter 'horizn'; did you mean horizon", "reasoning_gym:chain_sum", horizn=2)
    says("'zzzz'; it takes .*max_digits.*size", "reasoning_gym:chain_sum", zzzz=2)
    says("refuses min_terms=-2: min_terms must", "reasoning_gym:chain_sum", min_terms=-2)
    says("refuses its defaults: Must specify", "reasoning_gym:composite")
    says("size=0 makes no dataset", "reasoning_gym:chain_sum", size=0)


# ── math-verify ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        (r"so it is $\frac{1}{2}$", "0.5", 1),
        (r"\boxed{\frac12}", "1/2", 1),
        ("$x^2+2x+1$", "(x+1)^2", 1),
        ("$x^2+2x$", "(x+1)^2", 0),
        ("3", "x^2 + 3", 0),
        ("1,000", "$1000$", 1),
        ("first 3, then 4", "3", 0),
        ("hello", "hello", 1),
        ("", "4", 0),
        ("B", "A", 0),
    ],
)
def test_answers_are_compared_as_mathematics(completion, answer, score):
    assert math_score(completion, answer) == score


def test_an_answer_without_mathematics_is_not_scorable():
    assert math.isnan(math_score("4", "")) and math.isnan(math_score("", ""))


def test_a_hostile_expression_is_wrong_and_does_not_hang():
    before = math_verify._worker().call("grade", "3", "3")
    begin = time.monotonic()
    assert math_score("$9^{9^{9^{9}}}$", "1", timeout=0.5) == 0
    assert time.monotonic() - begin < 5
    assert before == math_score("3", "3") == 1


# ── parquet ──────────────────────────────────────────────────────────────────────────────────────


def test_rows_survive_parquet(tmp_path):
    rows = [
        {"prompt": [{"role": "user", "content": "é"}], "n": 1, "x": 0.5, "s": None},
        {"prompt": [{"role": "user", "content": "b"}], "n": 2, "x": None, "s": "t"},
    ]
    write_rows(tmp_path / "deep" / "a.parquet", rows)
    assert read_rows(tmp_path / "deep" / "a.parquet") == rows
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["a.parquet"]


def test_absent_values_are_null_and_mixed_columns_are_json(tmp_path):
    write_rows(tmp_path / "a.parquet", [{"a": 1, "b": {"c": 1}}, {"b": "text"}])
    rows = read_rows(tmp_path / "a.parquet")
    assert rows == [{"a": 1, "b": '{"c": 1}'}, {"a": None, "b": '"text"'}]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    write_rows(tmp_path / "a.parquet", [{"a": 1}])

    def full(table, where):
        where.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        write_rows(tmp_path / "a.parquet", [{"a": 2}])
    assert read_rows(tmp_path / "a.parquet") == [{"a": 1}]


def test_what_json_cannot_hold_becomes_text(tmp_path):
    table = pa.table({"day": pa.array([0], pa.date32()), "raw": [b"ab"], "l": [[1, 2]]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet") == [{"day": "1970-01-01", "raw": "ab", "l": [1, 2]}]


def test_a_bad_parquet_file_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
    says(r"a\.parquet cannot be read as parquet", dataset=tmp_path / "a.parquet")
    says(r"no file .*b\.parquet; did you mean a\.parquet", dataset=tmp_path / "b.parquet")


# ── load_task ────────────────────────────────────────────────────────────────────────────────────


def jsonl(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.fixture
def sums(tmp_path):
    rows = [{"prompt": f"{a}+{b}", "sum": a + b} for a in range(6) for b in range(6)]
    (tmp_path / "judge.py").write_text(
        "def right(completions, sum):\n"
        "    return [float(c == str(s)) if c else None for c, s in zip(completions, sum)]\n"
        "def hang(completions):\n"
        "    import time; time.sleep(60)\n"
        "def wants(completions, answer): return [0.0] * len(completions)\n"
    )
    return jsonl(tmp_path / "sums.jsonl", rows)


def test_a_file_and_a_reward_function_make_a_task(sums):
    judge = f"{sums.parent / 'judge.py'}:right"
    task = load_task(dataset=sums, reward=judge, held_out=7, seed=2)
    train, out = texts(task.train), texts(task.held_out)
    assert (task.name, task.horizon, len(train), len(out)) == ("sums", 256, 29, 7)
    assert not {mirror(text) for text in train} & {mirror(text) for text in out}
    row = task.train[3]
    got = task.score([row["prompt"]] * 3, [str(row["sum"]), "x", ""], [row] * 3)
    assert got[:2] == [1, 0] and math.isnan(got[2])
    recorded = task.settings()["reward"]["right"]
    assert recorded["source"] == f"the reward function right in {judge[:-6]}"


def test_a_reward_function_that_does_not_fit_is_named_before_training(sums):
    folder = sums.parent
    says("wants in .* asks for 'answer'", dataset=sums, reward=f"{folder / 'judge.py'}:wants")
    says("no function 'rigth'; did you mean right", dataset=sums, reward=f"{folder}/judge.py:rigth")
    task = load_task(dataset=sums, reward=f"{folder}/judge.py:hang", timeout=0.3)
    with pytest.raises(UsageError, match=r"hang in .* took more than 0\.3 s"):
        task.exact("x", task.train[0])


def test_a_reward_function_replaces_a_tasks_own():
    task = load_task("first_letter", reward=lambda completions: [len(c) for c in completions])
    row = task.train[0]
    assert task.score([row["prompt"]], ["abc"], [row]) == [3.0]
    assert "lambda" in task.settings()["reward"]["<lambda>"]["source"]
    says("asks for 'answer'", "first_letter", reward=lambda completions, answer: [0])
    says("eight_gaussians has its own reward", "eight_gaussians", reward=lambda completions: [0])


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_verl_rows_are_judged_by_math_verify(tmp_path, suffix):
    rows = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"{n} + {n}"}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(2 * n)},
            "extra_info": {"split": "train", "index": n},
        }
        for n in range(9)
    ]
    path = tmp_path / f"data.{suffix}"
    if suffix == "jsonl":
        jsonl(path, rows)
    else:
        write_rows(path, rows)
    task = load_task(dataset=path)
    assert len(task.held_out) == 3 and texts(task.train) | texts(task.held_out) == texts(rows)
    row = task.train[0]
    truth = row["reward_model"]["ground_truth"]
    tried = [rf"\boxed{{{truth}}}", f"{truth}1"]
    assert task.score([row["prompt"]] * 2, tried, [row] * 2) == [1, 0]


def test_pairs_make_a_preference_task(tmp_path):
    rows = [{"prompt": f"q{n}", "chosen": "good", "rejected": f"bad{n}"} for n in range(6)]
    task = load_task(dataset=jsonl(tmp_path / "pairs.jsonl", rows), held_out=1)
    assert (task.kind, len(task.train), len(task.held_out)) == ("preference", 5, 1)
    assert sorted(task.order(k, 0) for k in range(5)) == [0, 1, 2, 3, 4]
    says("holds pairs", dataset=tmp_path / "pairs.jsonl", reward=lambda completions: [])


def test_completions_make_a_task_of_demonstrations_unless_a_reward_is_given(tmp_path):
    rows = [{"prompt": f"q{n}", "completion": f"a{n}"} for n in range(6)]
    path = jsonl(tmp_path / "shown.jsonl", rows)
    task = load_task(dataset=path, held_out=1)
    assert (task.kind, len(task.train), len(task.held_out)) == ("demonstration", 5, 1)
    assert task.settings()["kind"] == "demonstration"
    judged = load_task(dataset=path, reward=lambda completions: [0.0] * len(completions))
    assert judged.kind == "language"


def test_rows_without_anything_to_judge_by_are_refused(sums, tmp_path):
    says(r"sums\.jsonl, row 1: nothing says what is right: name a reward", dataset=sums)
    path = jsonl(tmp_path / "v.jsonl", [{"prompt": "a", "ground_truth": {"numbers": [1]}}])
    says("row 1: the ground truth .* is no text or number", dataset=path)


def test_a_dataset_of_another_kind_of_file_is_refused(tmp_path):
    says(r"data\.csv is neither \.jsonl nor \.parquet", dataset=tmp_path / "data.csv")


def test_control_and_generator_tasks_go_by_their_names():
    control, generator = load_task("CartPole-v1"), load_task("eight_gaussians", mode=3)
    assert (control.kind, control.observation_size, control.action_count) == ("control", 4, 2)
    assert (generator.kind, generator.dim, generator.mode) == ("generator", 2, 3)
    says(r"'CartPol-v1'.*did you mean CartPole-v1", "CartPol-v1")


def test_unknown_names_and_parameters_offer_the_nearest(sums):
    says("no task 'arithmetics'; did you mean arithmetic", "arithmetics")
    says(r"no task 'chain_sum'; did you mean reasoning_gym:chain_sum\?", "chain_sum")
    says("no task 'qqqqqq'; there are arithmetic, first_letter", "qqqqqq")
    says("arithmetic has no parameter 'horizons'; did you mean horizon", horizons=3)
    says("vowels has no parameter 'xyz'; it takes held_out, horizon", "vowels", xyz=3)
    says("dataset .* has no parameter 'heldout'; did you mean held_out", dataset=sums, heldout=3)
    says("give one of the two", "arithmetic", dataset=sums)


def test_every_dataset_of_reasoning_gym_has_a_name():
    names = task_names()
    assert {"arithmetic", "vowels", "CartPole-v1", "reasoning_gym:chain_sum"} <= {*names}
    assert sum(name.startswith("reasoning_gym:") for name in names) > 100
