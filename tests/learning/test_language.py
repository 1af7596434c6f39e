"""Every language recipe improves the character model within seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

import anypo

NAMES = [m.name for m in anypo.methods() if m.domain in ("language", "any")]
ARGUMENTS = {
    "reinforce": {"group": 8},
    "rloo": {"group": 8},
    "ppo": {"epochs": 1},
    "gspo": {"clip_low": 0.2, "clip_high": 0.2},
    "rebel": {"group": 8, "eta": 4.0},
    "gvpo": {"beta": 0.3},
    "dpo": {"beta": 0.5},
    "dapo": {"group": 8, "rounds": 2, "overlong": 0.0},
}
"""Arguments that suit a model of 80 000 weights; what is not named keeps the paper's value."""


def ends(rows: list[dict], n: int = 4) -> tuple[float, float]:
    """Mean reward of the first and of the last iterations."""
    rewards = [row["reward"] for row in rows]
    return sum(rewards[:n]) / n, sum(rewards[-n:]) / n


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_learns(name: str, tmp_path: Path):
    """The share of vowels in eight characters grows from a tenth to nearly a half at least."""
    recipe = anypo.recipe(name, **ARGUMENTS.get(name, {}))
    prompts = 8 if recipe.sampling.group > 2 else 32
    run = anypo.train(
        recipe,
        policy="tiny",
        task="vowels",
        steps=25,
        prompts=prompts,
        out=tmp_path,
        eval_every=0,
        eval_size=1,
        record_every=0,
        save_every="1000",
    )
    before, after = ends(run.metrics)
    assert before < 0.2
    assert after > 0.4
