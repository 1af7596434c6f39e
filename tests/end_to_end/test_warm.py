"""From demonstrations to rewards: a run starts where another one ended."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import torch

import anypo
from anypo.backends.load_task import load_task
from anypo.backends.policies import load_policy
from anypo.cli import app
from anypo.engine.settings import Settings
from anypo.engine.state import State

QUIET = {"record_every": 0, "save_every": "1000", "seed": 0}
SPLIT = {"held_out": 16}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The words of first_letter with right answers, as conversations."""
    words = ["".join(letters) for letters in product("abcd", repeat=3)]
    rows = [{"prompt": w, "completion": 4 * w[0]} for w in words]
    path = tmp_path_factory.mktemp("demos") / "demos.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def warm(demos: Path) -> anypo.Run:
    """Forty iterations of fine-tuning on three quarters of them."""
    return anypo.train(
        "sft",
        policy="tiny",
        dataset=demos,
        out=demos.parent / "warm",
        steps=40,
        task_options=SPLIT,
        **QUIET,
    )


def test_fine_tuning_raises_the_likelihood_of_answers_held_out(warm):
    before, after = warm.scores["before"], warm.scores["after"]
    assert before["held_out/nll"] > 4 > 0.6 > after["held_out/nll"] > 0
    assert after["held_out/mean_token_accuracy"] > 0.75
    assert after["held_out/rows"] == 16 and after["held_out/tokens"] == 80
    along = [row["held_out/nll"] for row in warm.metrics if "held_out/nll" in row]
    assert len(along) == 3 and sorted(along, reverse=True) == along
    facts = json.loads((warm.out / "anypo.json").read_text())
    assert facts["task"]["rows_dropped"] == facts["task"]["rows_cut"] == 0


def reach(policy: str, out: Path, level: float) -> int:
    """Iterations of GRPO until held-out accuracy reaches a level; 24 where it does not."""
    run = anypo.train(
        anypo.recipe("grpo", beta=0.0),
        policy=policy,
        task="first_letter",
        out=out,
        steps=24,
        eval_every=2,
        prompts=8,
        task_options=SPLIT,
        stop_at=f"held_out/accuracy>={level}",
        **QUIET,
    )
    return run.metrics[-1]["step"]


def test_a_run_from_a_warm_start_is_faster_than_one_from_nothing(warm, tmp_path):
    """The questions held out are the same in both runs, so nothing is remembered."""
    started = reach(str(warm.out), tmp_path / "warm", 0.75)
    fresh = reach("tiny", tmp_path / "fresh", 0.75)
    assert started <= 6 < 12 < fresh


def test_the_last_checkpoint_is_what_a_run_hands_on(warm, demos):
    policy = load_policy(str(warm.out), task=load_task(dataset=demos))
    assert policy.name == str(warm.out / "checkpoint-40")
    for ours, theirs in zip(
        policy.module.parameters(), warm.policy.module.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_the_reference_of_a_warm_adapter_is_the_warm_policy(demos, tmp_path):
    """Switched off, a fresh adapter is the policy as it starts; a trained one is not."""
    run = anypo.train(
        "sft", policy="tiny", dataset=demos, out=tmp_path / "run", lora=2, steps=3, **QUIET
    )
    started = load_policy(str(run.out), task=load_task(dataset=demos))
    fresh = load_policy("tiny", task=load_task(dataset=demos), lora=2)
    assert (started.warm, fresh.warm, load_policy("tiny").warm) == (True, False, False)
    recipe = anypo.recipe("grpo", beta=0.04)
    assert State.start(recipe, fresh, Settings()).references["base"] is None
    reference = State.start(recipe, started, Settings()).references["base"]
    assert reference is not None
    own = dict(started.module.named_parameters())
    assert all(torch.equal(x, own[name]) for name, x in reference.items())
    assert any(bool(x.any()) for name, x in reference.items() if "lora_B" in name)


def test_the_command_shows_likelihoods_before_and_after(demos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = f"train sft --dataset {demos} --policy tiny --steps 3 --out run --task.max_length 8"
    assert app.run([*words.split(), "--task.held_out", "16"]) == 0
    shown = capsys.readouterr()
    assert "How likely the given answers are" in shown.out
    assert "answers held out: mean −log p" in shown.out
    assert "Sampled by the policy of then" not in shown.out
    assert "64 of 64 rows" not in shown.err and "nll" in shown.err and "reward" not in shown.err
    words = f"train sft --dataset {demos} --policy tiny --out cut --task.max_length 7 --steps 1"
    assert app.run([*words.split(), "--task.too_long", "cut"]) == 0
    assert "64 of 64 rows are cut to their first 7 tokens" in capsys.readouterr().err


def test_raft_learns_to_repeat_the_first_letter(tmp_path):
    run = anypo.train(
        anypo.recipe("raft", differ=True, epochs=2, minibatches=4),
        policy="tiny",
        task="first_letter",
        out=tmp_path,
        steps=25,
        eval_every=0,
        **QUIET,
    )
    rewards = [row["reward"] for row in run.metrics]
    assert rewards[0] < 0.1 < 0.9 < rewards[-1]
    assert run.scores["after"]["held_out/accuracy"] > 0.9
    assert all(row["sampled"] == 128 and row["kept"] <= 16 for row in run.metrics)
