"""Runs that were broken on purpose are found out, and healthy ones are left in peace."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import anypo
from anypo.api import load_recipe
from anypo.cli.arguments import typed
from anypo.cli.options import leaves
from anypo.cli.train import Train
from anypo.core.piece import Piece
from anypo.doctor import CHECKS, Record, examine, read_run
from anypo.engine.limits import condition
from tests.doctor.broken import MAKERS

SHARED = {"ratio_tails": "policy_jumps", "no_progress": "critic"}
"""Kinds that another kind's run has as well."""

LONGER = "length_hacking critic no_progress over_optimised entropy_runaway repetition memorised"
"""Kinds that take the longest to bring about."""


def kinds() -> list[Any]:
    """Every kind, the longest ones marked."""
    slow = {kind: [pytest.mark.slow] for kind in LONGER.split()}
    return [pytest.param(c.kind, marks=slow.get(c.kind, [])) for c in CHECKS]


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> Any:
    """The record of the run that is broken in a way, trained once."""

    @cache
    def made(kind: str) -> Record:
        if kind in SHARED:
            return made(SHARED[kind])
        out: Path = tmp_path_factory.mktemp(kind) / "run"
        MAKERS[kind](out)
        return read_run(out)

    return made


def test_every_kind_of_trouble_has_its_broken_run():
    assert {c.kind for c in CHECKS} == set(MAKERS) | set(SHARED)
    assert len(CHECKS) >= 20


@pytest.mark.parametrize("kind", kinds())
def test_a_broken_run_is_found_out(record, kind):
    found = {f.kind: f for f in examine(record(kind)).findings}
    assert kind in found, sorted(found)
    finding = found[kind]
    assert re.search(r"\d", finding.evidence)
    assert finding.threshold
    assert finding.source
    assert 0 <= finding.iterations[0] <= finding.iterations[1] <= record(kind).last
    advised(finding.advice, record(kind))


METHODS = {m.name: m for m in anypo.methods()}


def advised(advice: tuple[str, ...], record: Record) -> None:
    """Every option and command of an advice exists, and fits the run's recipe."""
    recipe = load_recipe(record.facts["recipe"])
    for text in advice:
        for name in re.findall(r"anypo train (\w+)", text):
            assert name in METHODS
        for option, value in re.findall(r"--([\w.-]+) ('[^']*'|\S+)", text):
            if option.startswith("recipe."):
                path = option.removeprefix("recipe.")
                assert not isinstance(typed(recipe, path, value), Piece)
                recipe.set(path, typed(recipe, path, value))
            elif option == "stop-at":
                assert condition(value.strip("'"))
            elif option in ("beta", "overlong"):
                assert any(option in m.parameters for m in METHODS.values())
            else:
                assert option.replace("-", "_") in leaves(Train)


PAIRS = '{"prompt": "p", "chosen": "ok", "rejected": "no"}\n'
HEALTHY: dict[str, dict[str, Any]] = {
    "words": {"recipe": "grpo", "policy": "tiny", "task": "first_letter", "steps": 45},
    "vowels": {"recipe": "dr_grpo", "policy": "tiny", "task": "vowels", "steps": 40},
    "generator": {"recipe": "flow_grpo", "task": "eight_gaussians", "steps": 20, "prompts": 8},
    "control": {"recipe": "ppo", "task": "CartPole-v1", "steps": 12, "prompts": 4},
    "pairs": {"recipe": "dpo", "policy": "tiny", "steps": 25, "prompts": 4},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ppo": {"gamma": 0.99, "value_clip": float("inf"), "epochs": 4, "minibatches": 4},
    "flow_grpo": {"clip": 1e-2, "beta": 0.01},
}


CHECKED = {"words": 24, "vowels": 23, "generator": 12, "control": 12, "pairs": 3}
"""How many checks at least could be made."""


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_left_in_peace(name, tmp_path):
    options = dict(HEALTHY[name])
    recipe = options.pop("recipe")
    if name == "pairs":
        words = ("apple", "berry", "cherry", "dates", "elder", "figs")
        lines = [PAIRS.replace('"p"', f'"{w}"') for w in words]
        (tmp_path / "pairs.jsonl").write_text("".join(lines))
        options["dataset"] = tmp_path / "pairs.jsonl"
    made = anypo.recipe(recipe, **ARGUMENTS.get(recipe, {}))
    anypo.train(made, out=tmp_path / "run", **options)
    found = examine(read_run(tmp_path / "run"))
    assert [f.sentence for f in found.findings] == []
    assert found.checked >= CHECKED[name]
