"""`evaluate`: every measure against numbers by hand, and what it refuses."""

from __future__ import annotations

import importlib
import json
import math

import pytest
import torch

import anypo
from anypo.api import Scores
from anypo.api.evaluate import evaluate
from anypo.backends.parquet import read_rows
from anypo.core.errors import UsageError
from anypo.core.score import Score
from anypo.engine.measure import share
from anypo.engine.metrics import interval
from anypo.policies.policy import Completion
from anypo.tasks.task import Demonstrations, Preferences, Problems, each, exact_answer

ROWS = tuple({"prompt": q, "answer": q[-1]} for q in ("say 1", "say 2", "say 3", "say 4"))


class Parrot:
    """Answers as it is told: greedily the first of its texts, then they come in turns."""

    kind, name = "language", "parrot"

    def __init__(self, **said: list[str]) -> None:
        self.said, self.asked, self.temperature = said, [], 0.5

    def publish(self) -> None:
        """Nothing to do."""

    def generate(self, prompts, samples, horizon, *, keys, temperature=1.0):
        """The texts of a prompt, in turns."""
        self.asked.append((list(prompts), samples, horizon, list(keys), temperature))
        found = []
        for p, prompt in enumerate(prompts):
            texts = self.said[f"q{prompt[-1]}"]
            for g in range(samples):
                ids, text = torch.arange(2), texts[g % len(texts)]
                found.append(Completion(p, ids, ids, torch.zeros(2), True, text, prompt))
        return found


TEXTS = {
    "q1": [" 1", "1", "7", "7", "8", "1"],
    "q2": ["9", "9", "2", "2"],
    "q3": ["0"],
    "q4": ["4"],
}


def problems(scorer=None, train=ROWS[:3], held_out=ROWS[3:]) -> Problems:
    """Four questions, one of them held out."""
    return Problems("say", train, held_out, scorer or each(exact_answer), 5)


def test_without_k_only_the_greedy_answers_are_measured():
    parrot = Parrot(**TEXTS)
    scores = evaluate(parrot, problems())
    assert isinstance(scores, Scores)
    assert list(scores) == ["seen", "held_out"]
    assert list(scores["seen"].measures) == ["greedy"]
    assert (scores["seen"].correct, scores["seen"].total) == (1, 3)
    assert scores["seen"].interval == interval(1, 3)
    assert scores["held_out"].accuracy == 1
    assert [asked[4] for asked in parrot.asked] == [0.0, 0.0]
    assert parrot.temperature == 0.5, "the policy is left as it was"


def test_samples_give_pass_at_k_majorities_and_the_mean():
    scores = evaluate(Parrot(**TEXTS), problems(), k=4)
    seen = scores["seen"]
    assert list(seen.measures) == [
        *("greedy", "pass@1", "pass@2", "pass@4", "maj@2", "maj@4", "mean@4"),
    ]
    one, two, three = seen.rows
    # " 1" and "1" are right, "7" and "7" are not: a tie of the answers 1 and 7
    assert (one["pass@1"], one["pass@4"], one["maj@4"]) == (0.5, 1.0, 0.5)
    assert one["pass@2"] == pytest.approx(1 - 1 / 6)
    assert one["answers"] == ["1", "1", "7", "7"]
    assert (two["pass@1"], two["maj@4"], two["greedy"]) == (0.5, 0.5, 0.0)
    assert (three["pass@4"], three["maj@4"], three["mean@4"]) == (0, 0, 0)
    assert seen.measures["pass@1"].value == pytest.approx(1 / 3)
    assert seen.measures["mean@4"].value == pytest.approx(1 / 3)
    assert seen.measures["pass@4"].value == pytest.approx(2 / 3)
    low, high = interval(2, 3)
    assert (seen.measures["pass@4"].low, seen.measures["pass@4"].high) == pytest.approx((low, high))
    # four answers are one majority of four, two of two, four of one: no more trials than that
    for name, draws in (("maj@4", 1), ("pass@2", 2), ("pass@1", 4), ("mean@4", 4)):
        assert seen.measures[name] == share([row[name] for row in seen.rows], draws)
    assert share([0.5, 0.5, 0.0], 1) != share([0.5, 0.5, 0.0], 4)
    assert scores["held_out"].measures["maj@2"].value == 1


def test_more_samples_than_k_and_a_k_between_powers_of_two():
    parrot = Parrot(**TEXTS)
    scores = evaluate(parrot, problems(), k=3, samples=6, temperature=0.7)
    row = scores["seen"].rows[0]
    assert [n for n in scores["seen"].measures if n[:4] == "pass"] == ["pass@1", "pass@2", "pass@3"]
    # three of six are right: 1 − C(3, 3)/C(6, 3)
    assert row["pass@3"] == pytest.approx(1 - 1 / 20)
    assert row["mean@6"] == 0.5
    assert {asked[4] for asked in parrot.asked} == {0.0, 0.7}
    assert scores.settings["samples"] == 6


def test_samples_alone_give_the_mean_and_pass_at_1():
    assert list(evaluate(Parrot(**TEXTS), problems(), samples=2)["seen"].measures) == [
        *("greedy", "pass@1", "mean@2"),
    ]


def test_every_answer_has_a_key_of_its_own_whatever_the_lots(monkeypatch):
    whole, parts = Parrot(**TEXTS), Parrot(**TEXTS)
    evaluate(whole, problems(), k=2, seed=4)
    module = importlib.import_module("anypo.api.evaluate")  # the function has its name
    monkeypatch.setattr(module, "TOGETHER", 2)
    told = []
    evaluate(parts, problems(), k=2, seed=4, tell=lambda *said: told.append(said))
    sampled = lambda p: [key for a in p.asked if a[1] == 2 for key in a[3]]  # noqa: E731
    assert sampled(whole) == sampled(parts)
    assert len(set(sampled(whole))) == 8
    assert ("seen, 2 samples each", 1, 3) in told
    assert told[-1] == ("held_out, 2 samples each", 1, 1)


def test_votes_go_by_what_the_reward_calls_the_answer():
    def judge(prompts, completions, rows, ids=None):
        return [Score(float("1" in c), {"answer": c.strip("* ")}) for c in completions]

    task = problems(judge, ROWS[:1], ())
    scores = evaluate(Parrot(q1=["*1*", "1", "0", "7"]), task, k=4)
    assert scores["seen"].rows[0]["maj@4"] == 1
    assert evaluate(Parrot(q1=["*1*", "1", "0", "0"]), task, k=4)["seen"].rows[0]["maj@4"] == 0.5


def test_what_cannot_be_scored_is_not_right_and_not_in_the_mean():
    task = problems(each(lambda text, row: math.nan if text == "7" else 2.5), ROWS[:1], ())
    scores = evaluate(Parrot(q1=["1", "7"]), task, k=2)
    row = scores["seen"].rows[0]
    assert (row["pass@1"], row["mean@2"]) == (0.5, 2.5)
    assert evaluate(Parrot(q1=["7"]), task, k=2)["seen"].measures["mean@2"].count == 0


def test_a_judge_is_asked_once_for_each_sample():
    asked = []

    def judge(prompts, completions, rows, ids=None):
        asked.append((len(completions), ids is not None))
        return [1.0] * len(completions)

    evaluate(Parrot(**TEXTS), problems(judge, ROWS[:1], ()), k=4)
    assert asked == [(1, False), (4, True)]


def test_questions_are_saved_with_their_answers(tmp_path):
    hostile = Parrot(q1=["<script>\x1b[31m\ud800", "1"], q2=["2"], q3=["3"], q4=["4"])
    scores = evaluate(hostile, problems(), k=2)
    rows = read_rows(scores.save(tmp_path / "x.parquet"))
    assert [row["side"] for row in rows] == ["seen"] * 3 + ["held_out"]
    assert rows[1]["completions"] == ["2", "2"]
    assert rows[0]["prompt"] == "say 1"
    assert rows[0]["right"] == [False, True]
    assert rows[3]["pass@2"] == 1.0
    with pytest.raises(UsageError, match=r"does not end in \.parquet"):
        scores.save(tmp_path / "x.csv")


def test_two_are_compared_question_by_question():
    good, bad = Parrot(**{**TEXTS, "q2": ["2"]}), Parrot(**TEXTS)
    first, second = evaluate(good, problems()), evaluate(bad, problems())
    pair = first.against(second)["seen"]["greedy"]
    assert (pair.wins, pair.losses, pair.count, pair.p) == (1, 0, 3, 1.0)
    assert pair.difference == pytest.approx(1 / 3)
    other = evaluate(bad, problems(train=ROWS[1:], held_out=ROWS[:1]))
    with pytest.raises(UsageError, match="not asked the same questions"):
        first.against(other)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "n must be at least 1"),
        ({"k": -1}, "k must be at least 0"),
        ({"k": 4, "samples": 2}, "k=4 wants at least that many samples, not 2"),
        ({"k": 2, "temperature": 0}, "at temperature 0 all samples are the greedy answer"),
        ({"k": 2, "temperature": -1}, "temperature must be at least 0"),
        ({"temperature": 0.5}, "temperature acts on samples, and none are drawn"),
        ({"k": 2000}, "2000 samples per question are above 1000"),
        ({"reward": "x.py:f"}, "a task that is an object"),
    ],
)
def test_what_cannot_be_measured_is_said(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        evaluate(Parrot(**TEXTS), problems(), **options)


def test_options_of_questions_are_refused_elsewhere():
    for name in ("k", "samples", "horizon"):
        with pytest.raises(UsageError, match=f"{name} acts on questions; CartPole-v1 is of kind"):
            evaluate("", "CartPole-v1", 2, **{name: 2})
    with pytest.raises(UsageError, match="leave it out"):
        evaluate("", "eight_gaussians", 2, temperature=0.5)


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_measured_on_its_own_task_and_seed(trained):
    scores = evaluate(trained, k=2)
    after = json.loads((trained / "scores.json").read_text())["after"]
    assert scores.settings["task"] == "first_letter"
    assert scores.settings["seed"] == 3
    for side in ("seen", "held_out"):
        assert scores[side].correct == after[f"{side}/correct"]
        assert scores[side].total == after[f"{side}/total"]
    assert scores["seen"].measures["mean@2"].value > 0.05, "it learned more than chance"
    again = evaluate(str(trained / "checkpoint-14"), k=2)
    assert again["seen"].rows == scores["seen"].rows
    early = evaluate(str(trained / "checkpoint-7"), n=5)
    assert early.settings["policy"].endswith("checkpoint-7")
    assert early["seen"].total == 5


def test_a_run_on_an_object_asks_for_a_task(tmp_path, trained):
    facts = json.loads((trained / "anypo.json").read_text())
    del facts["asked"]
    (tmp_path / "anypo.json").write_text(json.dumps(facts))
    with pytest.raises(UsageError, match=r"without a name to make it again from \(first_letter"):
        evaluate(tmp_path)


# ── other kinds ──────────────────────────────────────────────────────────────────────────────────


def test_a_controller_is_measured_by_whole_episodes():
    scores = anypo.evaluate("", "CartPole-v1", 5, seed=1)
    side = scores["episodes"]
    assert list(side.measures) == ["greedy", "sampled"]
    assert side.measures["greedy"].value == sum(row["greedy"] for row in side.rows) / 5
    assert all(row["greedy"] == row["greedy/steps"] for row in side.rows)
    assert side.measures["sampled"].low < side.measures["sampled"].value
    again = anypo.evaluate("", "CartPole-v1", 5, seed=1)
    assert again["episodes"].rows == side.rows
    pair = scores.against(again)["episodes"]["sampled"]
    assert (pair.difference, pair.count) == (0, 5)


def test_a_generator_is_measured_by_its_points():
    scores = anypo.evaluate("", "eight_gaussians", 40)
    side = scores["points"]
    assert list(side.measures) == ["sampled", "deterministic"]
    assert 0 <= side.measures["sampled"].low <= side.measures["sampled"].value <= 0.4
    assert len(side.rows[0]["deterministic/point"]) == 2
    assert side.rows[0]["sampled/point"] != side.rows[1]["sampled/point"]


ANSWERS = [("abc", "aaaa"), ("abd", "b"), ("ca", "a long answer"), ("d", "dd")]


def by_hand(policy, prompt: str, answer: str) -> list[float]:
    """Log-probabilities of an answer's tokens and of its end, by the whole model."""
    before = policy.tokenizer(prompt)["input_ids"]
    ids = [*before, *policy.tokenizer(answer)["input_ids"], 0]
    with torch.no_grad():
        logits = policy.net.causal(input_ids=torch.tensor([ids])).logits[0]
    logp = torch.log_softmax(logits.double(), -1)
    return [float(logp[i - 1, ids[i]]) for i in range(len(before), len(ids))]


def test_demonstrations_are_measured_by_token_and_by_row(trained):
    policy = anypo.load_policy(trained)
    rows = tuple({"prompt": p, "completion": c} for p, c in ANSWERS)
    side = evaluate(policy, Demonstrations("shown", rows, rows[:1]))["seen"]
    logp = [by_hand(policy, *pair) for pair in ANSWERS]
    tokens = [x for own in logp for x in own]
    nll = -sum(tokens) / len(tokens)
    assert side.measures["nll"].value == pytest.approx(nll, rel=1e-5)
    assert side.measures["nll"].low < nll < side.measures["nll"].high
    assert side.measures["perplexity"].value == pytest.approx(math.exp(nll), rel=1e-5)
    assert [row["tokens"] for row in side.rows] == [len(own) for own in logp]
    for row, own in zip(side.rows, logp):
        assert row["nll"] == pytest.approx(-sum(own) / len(own), rel=1e-5)
    assert side.measures["mean_token_accuracy"].low >= 0


def test_pairs_are_right_where_the_preferred_answer_is_likelier(trained):
    policy = anypo.load_policy(trained)
    both = [("aaaa", "b"), ("b", "zzzzzz"), ("a~a~", "a"), ("qq", "q")]
    rows = tuple({"prompt": "abc", "chosen": a, "rejected": b} for a, b in both)
    scores = evaluate(policy, Preferences("pairs", rows, ()))
    side = scores["seen"]
    for row, (a, b) in zip(side.rows, both):
        good, bad = by_hand(policy, "abc", a), by_hand(policy, "abc", b)
        assert row["margin"] == pytest.approx(sum(good) - sum(bad), rel=1e-4)
        assert row["pair_accuracy"] == (sum(good) > sum(bad))
        assert row["pair_accuracy/token"] == (sum(good) / len(good) > sum(bad) / len(bad))
    right = sum(row["pair_accuracy"] for row in side.rows)
    assert 0 < right < 4
    assert side.measures["pair_accuracy"].value == right / 4
    assert side.measures["pair_accuracy"].low == pytest.approx(interval(int(right), 4)[0])
    assert list(scores) == ["seen"], "a side without rows is left out"
