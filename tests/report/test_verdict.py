"""What a run's numbers allow to be said: intervals by hand, and what is said of which run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from anypo.report.run import load, share
from anypo.report.verdict import Change, newcombe, verdict, welch
from tests.report.runs import make


def judged(out: Path, before: dict, after: dict, rows: list[dict], **changes):
    """The verdict on a finished run with these scores and metrics."""
    make(out, 1, 0, **changes)
    (out / "before.json").write_text(json.dumps(before))
    (out / "scores.json").write_text(json.dumps({"before": before, "after": after}))
    (out / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return verdict(load(out))


def counts(correct: int, total: int, side: str = "held_out") -> dict:
    """Scores of a side."""
    return {f"{side}/correct": correct, f"{side}/total": total}


def series(**values: list[float]) -> list[dict]:
    """Metric rows from columns."""
    length = len(next(iter(values.values())))
    return [{"step": k + 1, **{n: v[k] for n, v in values.items()}} for k in range(length)]


def test_newcombe_agrees_with_the_published_example():
    # Newcombe (1998), table II, case (a), method 10: 56/70 − 48/80 = 0.2, 0.0524 to 0.3339.
    low, high = newcombe(point(48, 80), point(56, 70))
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)


def point(correct: int, total: int):
    """A share with its interval."""
    found = share(counts(correct, total), "held_out")
    assert found
    return found


def test_welch_by_hand():
    # Means 2 and 6, variances 1 and 4 of three each: error² = 5/3, freedom 50/17, cut to 2, whose
    # t is 4.3027.
    low, high = welch([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
    assert (low, high) == pytest.approx(
        (4 - 4.3027 * math.sqrt(5 / 3), 4 + 4.3027 * math.sqrt(5 / 3))
    )
    assert welch([1.0, 1.0], [3.0, 3.0]) == (2.0, 2.0)


def test_welch_covers_the_truth():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(2000):
        low, high = welch([*rng.normal(0, 1, 6)], [*rng.normal(0.5, 3, 6)])
        hits += low <= 0.5 <= high
    assert 0.94 <= hits / 2000 <= 0.98


def test_held_out_accuracy_decides(tmp_path):
    said = judged(tmp_path, counts(6, 60), counts(48, 60), series(reward=[1.0] * 10))
    assert (said.tone, said.head) == ("better", "It learned")
    assert (
        "questions never trained on went from 10\u202f% (before training) to 80"
        in said.sentences[0]
    )
    assert "between +54 and +80 points" in said.sentences[0]
    worse = judged(tmp_path, counts(48, 60), counts(6, 60), series(reward=[1.0] * 10))
    assert (worse.tone, worse.head) == ("worse", "It got worse")
    same = judged(tmp_path, counts(30, 60), counts(31, 60), series(reward=[1.0] * 10))
    assert (same.tone, same.head) == ("unsure", "No certain change")


def test_what_was_practised_is_not_what_was_learned(tmp_path):
    rows = series(reward=[k / 20 for k in range(20)])
    said = judged(tmp_path, counts(5, 20), counts(8, 20), rows)
    assert (said.tone, said.head) == ("unsure", "Better at what it practised, uncertain beyond")
    assert "(first 5 iterations) to 0.85 (last 5)" in said.sentences[1]
    said = judged(tmp_path, counts(15, 20), counts(2, 20), rows)
    assert (said.tone, said.head) == ("worse", "Better at what it practised, worse beyond")


def test_the_return_of_finished_episodes_goes_before_the_reward(tmp_path):
    rows = series(
        **{"reward": [5.0 - k / 10 for k in range(10)], "rollout/ep_rew_mean": [*range(10)]}
    )
    said = judged(tmp_path, {}, {}, rows, task={"name": "x", "kind": "control"})
    assert said.tone == "better"
    assert "mean return of finished episodes" in said.sentences[0]


def test_few_iterations_allow_no_judgement(tmp_path):
    said = judged(tmp_path, {}, {}, series(reward=[0.1, 0.9]))
    assert (said.tone, said.head) == ("unsure", "No certain change")
    assert "So few iterations say nothing" in said.sentences[0]
    none = judged(tmp_path, {}, {}, [])
    assert (none.tone, none.sentences) == ("none", ("No iteration is finished.",))


def test_pairs_are_judged_against_guessing_not_against_a_policy_that_ties(tmp_path):
    pairs = {"name": "x", "kind": "preference"}
    rows = series(reward=[0.5] * 12, accuracy=[0.5 + k / 30 for k in range(12)])
    said = judged(tmp_path, counts(0, 60), counts(31, 60), rows, task=pairs)
    assert said.tone == "unsure"  # 52 % of 60 is no more than a coin does
    assert said.change is not None
    assert said.change.before == 50
    sure = judged(tmp_path, counts(0, 60), counts(50, 60), rows, task=pairs)
    assert (sure.tone, sure.head) == ("better", "It learned")
    assert not any("reward" in sentence for sentence in sure.sentences)


def test_demonstrations_are_judged_by_their_surprise_and_overfitting_is_said(tmp_path):
    given = {"name": "x", "kind": "demonstration"}
    rows = series(reward=[1.0] * 12, nll=[3.0 - k / 5 for k in range(12)])
    said = judged(tmp_path, {"held_out/nll": 3.0}, {"held_out/nll": 1.0}, rows, task=given)
    assert (said.tone, said.head) == ("better", "It learned")
    over = judged(tmp_path, {"held_out/nll": 3.0}, {"held_out/nll": 3.5}, rows, task=given)
    assert (over.tone, over.head) == ("unsure", "Better at what it practised, worse beyond")


def test_an_unfinished_run_is_judged_so_far(tmp_path):
    make(tmp_path, 12, 0)
    (tmp_path / "scores.json").unlink()
    said = verdict(load(tmp_path))
    assert said.head == "It learned, so far"
    assert "reward" in said.sentences[0]


def test_a_change_for_the_better_may_be_downwards():
    down = Change("x", 3.0, 1.0, -2.5, -1.5, better=-1)
    assert (down.tone, down.difference) == ("better", -2.0)
    assert Change("x", 3.0, 1.0, -2.5, -1.5).tone == "worse"
    assert "between −2.5 and −1.5" in down.sentence
