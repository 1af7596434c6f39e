"""A step is a step: environment actions and denoising transitions through the same loop."""

from __future__ import annotations

from pathlib import Path

import anypo


def mean(rows: list[dict], name: str) -> float:
    """Mean of a metric over some iterations, those without it left out."""
    found = [row[name] for row in rows if row.get(name) is not None]
    return sum(found) / len(found)


def test_ppo_with_a_categorical_policy_learns_cartpole(tmp_path: Path):
    """The return goes from about 20 to several hundred of at most 500."""
    recipe = anypo.recipe("ppo", gamma=0.99, value_clip=float("inf"), epochs=10, minibatches=8)
    run = anypo.train(recipe, task="CartPole-v1", steps=12, prompts=4, out=tmp_path, seed=1)
    rows = run.metrics
    assert rows[0]["rollout/ep_rew_mean"] < 40
    assert mean(rows[-4:], "rollout/ep_rew_mean") > 150


def test_flow_grpo_moves_a_flow_to_the_rewarded_mode(tmp_path: Path):
    """The share of points at one of eight modes, an eighth before, at least doubles its half."""
    recipe = anypo.recipe("flow_grpo", clip=1e-2, beta=0.01)
    run = anypo.train(recipe, task="eight_gaussians", steps=40, prompts=8, out=tmp_path, seed=1)
    rows = run.metrics
    assert mean(rows[:5], "reward") < 0.2
    assert mean(rows[-5:], "reward") > 0.35
    # Recorded and recomputed log-probabilities agree before the first update.
    assert rows[0]["sampling/sampling_logp_difference/max"] < 1e-3


def test_flow_grpo_with_the_sign_turned_moves_it_away(tmp_path: Path):
    """The same loop on the negated advantage: the rewarded mode empties."""
    recipe = anypo.recipe("flow_grpo", clip=1e-2, beta=0.0)
    away = recipe.but(advantage=-1.0 * recipe.advantage)
    run = anypo.train(away, task="eight_gaussians", steps=25, prompts=8, out=tmp_path, seed=1)
    assert mean(run.metrics[-5:], "reward") < 0.08
