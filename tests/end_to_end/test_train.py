"""Whole runs on the character model: every kind of data, adapters, and what a run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import anypo
from anypo.backends.parquet import read_rows, write_rows
from anypo.core.errors import UsageError
from anypo.core.neutral import Groups

TINY = {"policy": "tiny", "eval_size": 10, "eval_every": 0}


def mean(rows: list[dict], name: str) -> float:
    """Mean of a metric over rows."""
    return sum(row[name] for row in rows) / len(rows)


def test_a_run_leaves_what_a_person_and_a_script_look_for(tmp_path):
    run = anypo.train("grpo", task="first_letter", steps=3, prompts=4, out=tmp_path, **TINY)
    names = {p.name for p in tmp_path.iterdir()}
    assert names >= {"anypo.json", "metrics.jsonl", "completions", "checkpoint-3", "scores.json"}
    facts = json.loads((tmp_path / "anypo.json").read_text())
    assert facts["recipe"]["surrogate"] == {
        "piece": "Clip",
        "low": 0.2,
        "high": 0.2,
        "dual": {"float": "inf"},
    }
    assert {"torch", "transformers"} <= set(facts["versions"])
    rows = read_rows(tmp_path / "completions" / "step_00002.parquet")
    assert len(rows) == 4 * 8
    assert {"step", "prompt", "completion", "reward", "advantage"} <= set(rows[0])
    for group in {row["group"] for row in rows}:
        advantages = [row["advantage"] for row in rows if row["group"] == group]
        assert sum(advantages) == pytest.approx(0.0, abs=1e-4)
    keys = {
        "reward",
        "reward_std",
        "frac_reward_zero_std",
        "kl",
        "grad_norm",
        "learning_rate",
        "num_tokens",
        "completions/mean_length",
        "clip_ratio/region_mean",
        "loss",
        "entropy",
        "sampling/sampling_logp_difference/max",
        "step_time",
    }
    assert keys <= set(run.metrics[-1])
    assert max(row["sampling/sampling_logp_difference/max"] for row in run.metrics) < 1e-4


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path):
    def rewards(name: str, seed: int) -> list[float]:
        run = anypo.train("rloo", task="vowels", steps=3, out=tmp_path / name, seed=seed, **TINY)
        return [row["reward"] for row in run.metrics] + [row["grad_norm"] for row in run.metrics]

    assert rewards("a", 0) == rewards("b", 0) != rewards("c", 1)


def test_dpo_learns_the_pairs_of_a_file(tmp_path):
    """The margin of chosen over rejected grows, and a chosen answer becomes the likely one."""
    words = ["apple", "berry", "cherry", "dates", "elder", "figs", "grape", "hazel", "iris"]
    lines = [json.dumps({"prompt": w, "chosen": "ok", "rejected": "no"}) for w in words]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    run = anypo.train(
        "dpo",
        policy="tiny",
        dataset=tmp_path / "pairs.jsonl",
        steps=30,
        prompts=6,
        out=tmp_path / "run",
    )
    losses = [row["loss"] for row in run.metrics]
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)
    assert losses[-1] < 0.1


def demonstrations(path: Path) -> Path:
    """Nine words, each answered by its first letter, written large."""
    words = ["apple", "berry", "cherry", "dates", "elder", "figs", "grape", "hazel", "iris"]
    rows = [{"prompt": w, "completion": w[0].upper() + "!"} for w in words]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_psft_says_what_was_demonstrated(tmp_path):
    file = demonstrations(tmp_path / "shown.jsonl")
    run = anypo.train(
        "psft", policy="tiny", dataset=file, steps=40, prompts=6, out=tmp_path / "run"
    )
    rows = run.metrics
    assert rows[0]["nll"] > 2 and rows[-1]["nll"] < 0.05
    assert all(row["reward"] == 1.0 and "entropy" not in row for row in rows)
    kept = read_rows(tmp_path / "run" / "completions" / "step_00001.parquet")
    assert all(row["completion"] == row["prompt"][0].upper() + "!" for row in kept)
    prompts = sorted({r["prompt"] for r in kept})
    said = run.policy.generate(prompts, 1, 4, keys=[0] * len(prompts), temperature=0.0)
    assert [c.text for c in said] == [p[0].upper() + "!" for p in prompts]
    assert all(c.finished for c in said)


def test_one_step_of_psft_is_a_step_of_supervised_fine_tuning(tmp_path):
    """Before it moves, the clip does nothing."""
    file = demonstrations(tmp_path / "shown.jsonl")
    norms = []
    for name, recipe in (
        ("psft", anypo.recipe("psft", minibatches=1)),
        ("sft", anypo.recipe("sft")),
    ):
        run = anypo.train(
            recipe, policy="tiny", dataset=file, steps=3, prompts=6, out=tmp_path / name
        )
        norms.append([row["grad_norm"] for row in run.metrics])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("grpo", "compares answers to one prompt"),
        ("dpo", "compares answers to one prompt"),
        ("remax", "asks for further answers"),
        ("ppo", "learns a critic"),
        ("rto", "compares answers to one prompt"),
    ],
)
def test_demonstrations_are_refused_by_recipes_that_sample(name, why, tmp_path):
    file = demonstrations(tmp_path / "shown.jsonl")
    with pytest.raises(UsageError, match=f"{why}.*choose sft or psft, or give a reward"):
        anypo.train(name, policy="tiny", dataset=file, out=tmp_path / "run")


def test_a_later_phase_cannot_sample_where_answers_are_given(tmp_path):
    file = demonstrations(tmp_path / "shown.jsonl")
    both = anypo.recipe("sft").then(at=3, **anypo.recipe("grpo").axes)
    with pytest.raises(UsageError, match=r"a later phase .* compares .*the next one with --policy"):
        anypo.train(both, policy="tiny", dataset=file, out=tmp_path / "run")


@pytest.mark.parametrize("group", [1, 4])
def test_the_likelihood_of_own_answers_is_refused(group, tmp_path):
    """Its expected gradient is 0; with a selection among them it is not."""
    recipe = anypo.recipe("sft").but(sampling=Groups(group))
    with pytest.raises(UsageError, match=r"count alike .* dataset of demonstrations .* raft"):
        anypo.train(recipe, policy="tiny", task="vowels", out=tmp_path / "run")


def test_a_dataset_with_a_reward_file_is_learned(tmp_path):
    lines = [json.dumps({"prompt": f"say {c}", "wanted": "aeiou"}) for c in "bcdfghjklmnp"]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    (tmp_path / "judge.py").write_text(
        "def share(prompts, completions, wanted, **columns):\n"
        "    return [sum(c in w for c in t) / 8 for t, w in zip(completions, wanted)]\n"
    )
    run = anypo.train(
        "dr_grpo",
        policy="tiny",
        dataset=tmp_path / "rows.jsonl",
        horizon=8,
        steps=20,
        prompts=8,
        reward=f"{tmp_path / 'judge.py'}:share",
        out=tmp_path / "run",
        eval_every=0,
        eval_size=5,
    )
    rows = run.metrics
    assert mean(rows[-3:], "reward") > mean(rows[:3], "reward") + 0.1


def test_an_adapter_learns_and_its_reference_takes_no_memory(tmp_path):
    said: list[str] = []
    run = anypo.train(
        "grpo", task="vowels", lora=4, steps=12, prompts=8, out=tmp_path, notice=said.append, **TINY
    )
    assert any("no memory" in text for text in said)
    rows = run.metrics
    assert rows[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[-1]["kl"] > 0
    assert mean(rows[-3:], "reward") > mean(rows[:3], "reward")
    assert (tmp_path / "checkpoint-12" / "adapter_model.safetensors").exists()


def test_ppo_trains_a_critic_beside_a_language_model(tmp_path):
    run = anypo.train("ppo", task="vowels", steps=15, prompts=16, out=tmp_path, **TINY)
    rows = run.metrics
    assert mean(rows[-3:], "reward") > mean(rows[:3], "reward")
    # A critic that begins at 0 soon explains a part of what the returns differ by.
    assert mean(rows[2:8], "explained_variance") > 0.03


def test_the_folder_of_another_run_is_refused_and_left_alone(tmp_path):
    anypo.train("grpo", task="vowels", steps=1, prompts=2, out=tmp_path, **TINY)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    with pytest.raises(UsageError, match=r"holds another run \(recipe\..*another --out"):
        anypo.train("gspo", task="vowels", steps=1, prompts=2, out=tmp_path, **TINY)
    with pytest.raises(UsageError, match=r"\(settings.seed: 0 there, 1 here\)"):
        anypo.train("grpo", task="vowels", steps=1, prompts=2, out=tmp_path, seed=1, **TINY)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty and holds no run"):
        anypo.train("grpo", task="vowels", steps=1, out=tmp_path / "other", **TINY)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('boom')", "boom"),
        ("return ['1'] * len(completions)", "judge"),
        ("return [1.0]", "judge"),
        ("import time; time.sleep(60)", "judge"),
        ("return [float('inf')] * len(completions)", "judge"),
    ],
)
def test_a_bad_reward_function_is_named(body, said, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": c}) for c in "abcdef"))
    (tmp_path / "judge.py").write_text(f"def judge(prompts, completions, **columns):\n    {body}\n")
    with pytest.raises(UsageError, match=said):
        anypo.train(
            "grpo",
            policy="tiny",
            dataset=tmp_path / "rows.jsonl",
            out=tmp_path / "run",
            steps=1,
            reward=f"{tmp_path / 'judge.py'}:judge",
            task_options={"timeout": 2.0},
            prompts=2,
        )


def test_a_prompt_longer_than_the_context_is_named_before_training(tmp_path):
    rows = [{"prompt": "short"}] * 8 + [{"prompt": "x" * 5000}]
    write_rows(tmp_path / "rows.parquet", [{**r, "n": i} for i, r in enumerate(rows)])
    (tmp_path / "judge.py").write_text(
        "def judge(prompts, completions, **c): return [0.0] * len(prompts)\n"
    )
    with pytest.raises(UsageError, match="context"):
        anypo.train(
            "grpo",
            policy="tiny",
            dataset=tmp_path / "rows.parquet",
            out=tmp_path / "run",
            reward=f"{tmp_path / 'judge.py'}:judge",
            steps=1,
            prompts=1,
        )
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_unscored_completions_do_not_count(tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"prompt": c}) for c in "abcdef"))
    (tmp_path / "judge.py").write_text(
        "def judge(prompts, completions, **columns):\n"
        "    return [None if i % 4 == 0 else float(i % 2) for i, _ in enumerate(completions)]\n"
    )
    run = anypo.train(
        "grpo",
        policy="tiny",
        dataset=tmp_path / "rows.jsonl",
        out=tmp_path / "run",
        steps=1,
        reward=f"{tmp_path / 'judge.py'}:judge",
        prompts=2,
        horizon=3,
        eval_size=2,
    )
    assert (run.metrics[0]["unscored"], run.metrics[0]["kept"]) == (4, 12)


def test_default_threads_and_precision_leave_masters_in_float32(tmp_path):
    run = anypo.train("grpo", task="vowels", steps=1, prompts=2, out=tmp_path, **TINY)
    assert {p.dtype for p in run.policy.module.parameters()} == {torch.float32}
    assert Path(run.out) == tmp_path
