"""What is stored of an iteration for people to look at."""

from __future__ import annotations

import pytest
import torch

import anypo
from anypo.backends.parquet import read_rows


def early(text):
    """How many of its letters come early in the alphabet."""
    return float(sum(c < "m" for c in text))


def parts(prompts, completions):
    """A reward with two parts, of which one cannot score every answer."""
    return [
        {"score": early(t) / 8, "rewards/early": early(t), "rewards/odd": i % 2 or None}
        for i, t in enumerate(completions)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return anypo.train(
        anypo.recipe("dr_grpo", group=4),
        policy="tiny",
        task="first_letter",
        reward=parts,
        steps=2,
        prompts=3,
        eval_every=0,
        out=out,
    )


def test_tokens_make_up_the_completion_and_each_has_its_pull(run):
    rows = read_rows(run.out / "completions" / "step_00002.parquet")
    assert len(rows) == 12
    for row in rows:
        assert "".join(row["tokens"]) == row["completion"]
        assert len(row["gradient"]) == len(row["tokens"])
        pull = torch.tensor(row["gradient"])
        # One update at ratio 1: every token of an answer is pulled the way of its advantage.
        assert torch.equal(pull.sign(), torch.full_like(pull, row["advantage"]).sign())
    assert any(row["advantage"] > 0 for row in rows)
    whole = sum(sum(row["gradient"]) for row in rows)
    assert whole == pytest.approx(
        sum(r["advantage"] * len(r["tokens"]) for r in rows) / (12 * 4), abs=1e-6
    )


def test_parts_of_a_reward_are_columns_and_curves(run):
    rows = read_rows(run.out / "completions" / "step_00002.parquet")
    counts = [row["rewards/early"] for row in rows]
    assert counts == [early(row["completion"]) for row in rows]
    metrics = run.metrics[-1]
    assert metrics["rewards/early/mean"] == pytest.approx(sum(counts) / 12)
    assert metrics["rewards/odd/mean"] == 1.0
    assert metrics["reward"] == pytest.approx(sum(counts) / 8 / 12)


def test_a_run_says_how_far_weights_moved_and_how_old_samples_are(run):
    for row in run.metrics:
        assert 0 < row["weights/moved"] < 1 and 0 < row["weights/changed"] <= 1
        assert row["staleness/max"] == 0
