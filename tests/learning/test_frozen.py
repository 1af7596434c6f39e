"""A policy that learns from a value model alone."""

from __future__ import annotations

from pathlib import Path

import anypo
from tests.learning.test_language import ends
from tests.learning.words import task


def test_dvpo_learns_from_a_frozen_value_model(tmp_path: Path):
    """After the value stage no answer's score is read, and yet scores grow threefold.

    A linear head on the features of an untrained model knows little, so many answers are needed to
    fit it, and it stands still while the policy leaves what it was fitted on.
    """
    recipe = anypo.recipe("dvpo", group=32, warmup=12, beta=0.01, bootstrap=True)
    run = anypo.train(
        recipe,
        policy="tiny",
        task=task(),
        steps=25,
        prompts=8,
        out=tmp_path,
        eval_every=0,
        eval_size=1,
        record_every=0,
        save_every="1000",
    )
    rows = run.metrics
    values = [row["reward"] for row in rows[:12]]
    assert max(values) < 0.07
    before, after = ends(rows)
    assert after > 3 * before
