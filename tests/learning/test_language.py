"""Every language recipe improves the character model within seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anypo
from anypo.core.dump import dump
from tests.learning.words import task

INFO = {m.name: m for m in anypo.methods() if m.domain in ("language", "any")}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "reinforce": {"group": 8},
    "gtpo_token": {"apart": False},
    "gtpo_trajectory": {"most_entropy": 6.0, "penalty": 0.01},
    "oblr_po": {"smoothness": 20.0},
    "risk_po": {"size": 2},
    "rloo": {"group": 8},
    "ppo": {"epochs": 1},
    "gspo": {"clip_low": 0.2, "clip_high": 0.2},
    "rebel": {"group": 8, "eta": 4.0},
    "gvpo": {"beta": 0.3},
    "dpo": {"beta": 0.5},
    "dapo": {"group": 8, "rounds": 2, "overlong": 0.0},
    "apa": {"epochs": 1, "minibatches": 1},
    "ipo": {"beta": 0.05},
    "f_dpg": {"beta": 0.02},
    "remax": {"group": 8, "beta": 0.0},
    "vc_ppo": {"warmup": 3, "epochs": 1},
    "rto": {"epochs": 1},
    "geppo": {"epochs": 1, "minibatches": 4},
    "fapo": {"overlong": 0.0},
    "lapo": {"switch": 12},
    "concise_r": {"switch": 12, "group": 8},
    "unlikeliness_reward": {"group": 8},
    "rank_grpo": {"marker": "x"},
    "blockwise_advantage": {"marker": "x", "group": 8},
    "swap": {"marker": "x"},
    "grpo_process": {"marker": "x"},
    "future_reward_subset": {"group": 8, "k": 4},
}
"""Arguments that suit a model of 80 000 weights; what is not named keeps the paper's value."""

BINARY: frozenset[str] = frozenset({"aepo", "grpo_s", "gtpo_token"})
BINARY |= frozenset({"fapo", "lapo", "lc_r1", "concise_r", "gcpo_geometry", "swap"})
"""Recipes that need answers to be right or wrong."""

STEPS: dict[str, int] = {"remax": 50}
"""Iterations, where 25 are not enough."""

ELSEWHERE: frozenset[str] = frozenset({"bradley_terry", "dvpo", "psft", "sft"})
"""Recipes that learn from data instead of a reward, with tests of their own."""


def ends(rows: list[dict], n: int = 4) -> tuple[float, float]:
    """Mean reward of the first and of the last iterations."""
    rewards = [row["reward"] for row in rows]
    return sum(rewards[:n]) / n, sum(rewards[-n:]) / n


def pieces(name: str) -> frozenset[str]:
    """The kinds of pieces that a recipe is made of."""

    def walk(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["piece"]} if "piece" in node else set()
            return own.union(*(walk(v) for v in node.values()))
        return set().union(*(walk(v) for v in node)) if isinstance(node, list) else set()

    return frozenset(walk(dump(anypo.recipe(name))))


def cases() -> list[Any]:
    """Every recipe; of those made of the same pieces, all but the first are slow."""
    seen: set[frozenset[str]] = set()
    marked = []
    for name in sorted(set(INFO) - ELSEWHERE, key=lambda n: (n not in ("grpo", "ppo"), n)):
        kinds = pieces(name)
        marks = [pytest.mark.slow] if kinds in seen else []
        seen.add(kinds)
        marked.append(pytest.param(name, marks=marks))
    return marked


@pytest.mark.parametrize("name", cases())
def test_a_recipe_learns(name: str, tmp_path: Path):
    """The share of vowels (or of right answers) grows from a tenth to nearly a half."""
    recipe = anypo.recipe(name, **ARGUMENTS.get(name, {}))
    prompts = 8 if recipe.sampling.group > 2 else 32
    run = anypo.train(
        recipe,
        policy="tiny",
        task=task(binary=name in BINARY),
        steps=STEPS.get(name, 25),
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
