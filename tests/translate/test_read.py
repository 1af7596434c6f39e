"""Files are read, never run: which call, which lines, which values, and what cannot be known."""

from __future__ import annotations

import dataclasses
import json

import pytest

import anypo
from anypo.cli import main
from anypo.core.errors import UsageError
from anypo.translate import table, translate
from tests.translate.cases import FILES, grpo


def written(tmp_path, name: str, text: str):
    file = tmp_path / name
    file.write_text(text)
    return file


def lines(found) -> dict[str, tuple[int, str, str]]:
    """Key → line, verdict, what it is here."""
    return {x.source.split(" = ")[0]: (x.line, x.verdict, x.ours) for x in found.lines}


def test_nothing_of_a_file_is_run(tmp_path):
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w')\n" + grpo(f"beta=open({str(mark)!r}, 'w')", "epsilon=0.3")
    found = translate(written(tmp_path, "a.py", text))
    assert not mark.exists()
    assert lines(found)["beta"][:2] == (4, "unread")
    assert found.recipe.surrogate.high == 0.3


def test_names_sums_and_mappings_are_followed(tmp_path):
    text = (
        "LR = 1e-6\nSTEPS: int = 2 * 50\ncommon = {'beta': 0.01, 'epsilon': -(-0.1)}\n"
        "n = 4\nfor n in range(3):\n    pass\ndef f(x):\n    return x\n"
        + grpo("learning_rate=LR * 3", "max_steps=STEPS", "**common", "num_generations=n",
               "temperature=f(1)", "**other")
    )  # fmt: skip
    found = translate(written(tmp_path, "a.py", text))
    said = lines(found)
    assert found.options["lr"] == 3e-6
    assert found.options["steps"] == 100
    assert (found.recipe.surrogate.low, found.recipe.regularize[0].beta) == (0.1, 0.01)
    assert said["beta"][0] == said["epsilon"][0] == 13
    assert said["num_generations"][1] == said["temperature"][1] == "unread"
    assert said["**other"][1] == "unread"
    assert "prompts" not in found.options  # it depends on num_generations


def test_defaults_that_matter_are_said_and_no_others(tmp_path):
    said = lines(translate(written(tmp_path, "a.py", grpo("loss_type='grpo'"))))
    silent = {k: v[2] for k, v in said.items() if v[0] == 0}
    assert silent["beta"] == "no KL"
    assert silent["scale_rewards"] == "advantage.scale std; advantage.eps 0.0001"
    assert silent["learning_rate"] == "--lr 1e-06"
    assert "loss_type" not in silent
    assert "use_vllm" not in said


def test_an_unknown_key_is_listed(tmp_path):
    found = translate(written(tmp_path, "a.py", grpo("epsilonn=1", "use_vllm=True")))
    assert lines(found)["epsilonn"] == (3, "unknown", "")
    assert lines(found)["use_vllm"][1] == "idle"
    assert {x.source for x in found.gaps} == {"epsilonn = 1", "num_train_epochs = 3.0"}


SIZES = [
    ({}, {}, 1, (1, 1, 1)),
    ({"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}, {}, 1, (8, 1, 1)),
    ({"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}, {}, 2, (16, 1, 1)),
    ({"steps_per_generation": 4}, {}, 1, (4, 1, 4)),
    ({"steps_per_generation": 8, "gradient_accumulation_steps": 2}, {}, 1, (8, 1, 4)),
    ({"steps_per_generation": 1, "gradient_accumulation_steps": 4}, {}, 1, (4, 1, 1)),
    ({"generation_batch_size": 64, "num_iterations": 3}, {}, 1, (8, 3, 8)),
    ({"num_generations": 4}, {}, 1, (2, 1, 1)),
]


@pytest.mark.parametrize(("config", "more", "devices", "wanted"), SIZES)
def test_batches_of_trl(config, more, devices, wanted):
    found = anypo.from_trl({**config, "max_steps": 48}, devices=devices)
    update = found.recipe.update
    got = (found.options["prompts"], update.epochs, update.minibatches_per_epoch)
    assert got == wanted
    assert found.options["steps"] == -(-48 // (wanted[1] * wanted[2]))
    rows = anypo.from_trl(config, devices=devices, rows=100)
    assert rows.options["steps"] == -(-300 // wanted[0])


def test_batches_of_verl_and_sb3():
    config = {"data.train_batch_size": 96, "actor_rollout_ref.actor.ppo_mini_batch_size": 24}
    config |= {"algorithm.adv_estimator": "gae", "algorithm.gamma": 0.9, "algorithm.lam": 0.7}
    found = anypo.from_verl(config, rows=960)
    assert (found.options["prompts"], found.options["steps"]) == (96, 300)
    assert found.recipe.update.minibatches_per_epoch == 4
    gae = found.recipe.advantage.first
    assert (gae.gamma, gae.lam) == (0.9, 0.7)
    found = anypo.from_sb3({"n_steps": 100, "n_envs": 3, "batch_size": 70, "total_timesteps": 1000})
    assert (found.options["prompts"], found.options["horizon"], found.options["steps"]) == (
        3,
        100,
        4,
    )
    assert found.recipe.update.minibatches_per_epoch == 5


def test_a_configuration_object_is_its_changed_fields():
    @dataclasses.dataclass
    class Config:
        beta: float = 0.0
        epsilon: float = 0.2
        some_new_field: int = 3
        tags: list = dataclasses.field(default_factory=list)

    found = anypo.from_trl(Config(beta=0.1))
    assert [x.source for x in found.lines if x.source.startswith(("beta", "some", "tags"))] == [
        "beta = 0.1"
    ]
    assert found.recipe.regularize[0].beta == 0.1


def test_the_trap_of_cispo_is_named(tmp_path):
    found = translate(written(tmp_path, "a.py", FILES["trl_cispo_trap.py"]))
    (line,) = [x for x in found.lines if x.source == "loss_type = cispo"]
    assert line.verdict == "differs"
    assert "absolute" in line.remark
    assert found.recipe.surrogate.high == 0.0
    five = anypo.from_trl({"loss_type": "cispo", "epsilon_high": 5.0})
    assert five.recipe.surrogate.high == 4.0  # 1 + 4
    ours = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": 8}
    ours |= {"actor_rollout_ref.actor.policy_loss.loss_mode": "cispo"}
    there = anypo.from_verl({**ours, "actor_rollout_ref.actor.clip_ratio_high": 4.0})
    assert there.recipe.surrogate.high == 4.0


SCRIPT = """#!/bin/bash
export N=4
bsz=64
length=$((bsz * 8 + N))
unset X
DATA=(
    data.train_files=a.parquet   # the questions
    data.train_batch_size=$bsz
)
DATA+=(data.max_response_length=${length})
# actor_rollout_ref.actor.clip_ratio_low=0.9
ray job submit -- python3 -m verl.trainer.main_ppo "${DATA[@]}" \\
    actor_rollout_ref.rollout.n=${N} +actor_rollout_ref.actor.clip_ratio_high="0.3" \\
    actor_rollout_ref.actor.optim.lr=${LR:-2e-6} algorithm.adv_estimator=grpo \\
    trainer.default_local_dir=$HOME/x trainer.total_training_steps=10 $@
"""


def test_a_shell_script_is_read_without_a_shell(tmp_path):
    found = translate(written(tmp_path, "run.sh", SCRIPT))
    said = lines(found)
    assert said["data.train_files"] == (7, "same", "--dataset a.parquet")
    assert said["data.train_batch_size"] == (8, "same", "--prompts 64")
    assert said["data.max_response_length"] == (10, "same", "--horizon 516")
    assert said["rollout.n"][::2] == (13, "size 4") or said["rollout.n"][2].endswith("size 4")
    assert said["actor.clip_ratio_high"] == (13, "same", "surrogate.high 0.3")
    assert said["actor.optim.lr"] == (14, "same", "--lr 2e-06")
    assert said["trainer.default_local_dir"][1] == "unread"
    assert "out" not in found.options
    assert said["actor.clip_ratio_low"][0] == 0  # a comment says nothing


def test_yaml_keeps_lines_and_sees_through_interpolation(tmp_path):
    text = (
        "data:\n  train_batch_size: 32\nactor_rollout_ref:\n  actor:\n"
        "    ppo_mini_batch_size: ${data.train_batch_size}\n    clip_ratio_low: ${oc.env:LOW}\n"
        "  rollout: {n: 4}\nalgorithm:\n  adv_estimator: grpo\n"
    )
    said = lines(translate(written(tmp_path, "a.yaml", text)))
    assert said["actor.ppo_mini_batch_size"] == (5, "same", "update.minibatches_per_epoch 1")
    assert said["actor.clip_ratio_low"][:2] == (6, "unread")
    assert said["data.train_batch_size"] == (2, "same", "--prompts 32")


WRONG = [
    ("a.py", "x = 1\n", "holds no call that can be translated"),
    ("a.py", "def f(:\n", "is no Python file"),
    ("a.py", "PPO('MlpPolicy', 'CartPole-v1')\n", "holds no call"),
    ("a.py", grpo("beta=1") + grpo("beta=2"), "GRPOConfig in line 2, GRPOConfig in line 6: choose"),
    ("a.py", grpo("beta='much'"), "not of its kind"),
    ("a.py", grpo("num_generations=1"), "at least 2"),
    ("a.yaml", "- 1\n", "must hold a mapping"),
    ("a.yaml", "a: [1\n", "is no YAML file"),
    ("a.yaml", "a: &a [*a]\nb: !!python/object/apply:os.system ['true']\n", "is no YAML file"),
    ("a.yaml", "learning_rate: 1\n", "say which with --trainer"),
    ("a.sh", "echo hello\n", "neither a verl command line nor a trl one"),
    ("a.sh", "trl vllm-serve --model x\n", "cannot be translated"),
    ("a.json", "{}", "neither .py nor .yaml nor .sh"),
    ("a.py", b"\xff\xfe\x00", "is no text"),
]


@pytest.mark.parametrize(("name", "text", "sentence"), WRONG)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, text, sentence):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=sentence):
        translate(file)


def test_one_of_several_calls_is_chosen_by_its_line(tmp_path):
    file = written(tmp_path, "a.py", grpo("beta=0.1") + grpo("beta=0.2"))
    assert translate(file, line=6).recipe.regularize[0].beta == 0.2


def test_every_key_of_the_trainer_that_all_of_trl_share_is_known():
    from transformers import TrainingArguments

    for trainer in ("grpo", "rloo", "dpo", "sft"):
        known = table.rows("trl", trainer)
        names = [f.name for f in dataclasses.fields(TrainingArguments)]
        assert [n for n in names if table.find(known, n, None) is None] == []


@pytest.mark.parametrize("library", table.VERSIONS)
def test_the_tables_are_well_formed(library):
    rows = table.table(library)
    assert {r.verdict for r in rows} <= {"same", "differs", "none", "idle"}
    for row in rows:
        assert row.trainers, row
        assert row.verdict in ("same", "idle") or row.remark, f"{row.key}: say why"
        assert row.verdict != "none" or not row.ours or row.ours == ("--dataset",), row.key
    for trainer in {t for r in rows for t in r.trainers} - {"*"} or {"ppo"}:
        known = table.rows(library, trainer)
        odd = object()  # a value that nobody thought of has a row all the same
        assert [r.key for r in known if table.find(known, r.key, odd) is None] == []


def test_the_command_prints_writes_and_judges(tmp_path, capsys):
    file = written(tmp_path, "a.py", grpo("beta=0.1", "max_steps=5", "nonsense=1"))
    out = tmp_path / "c.yaml"
    assert main(["translate", str(file), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "anypo train grpo --steps 5" in shown
    assert "unknown to this table" in shown
    assert f"anypo train --config {out}" in shown
    assert out.read_text().startswith("# Translated from TRL 1.16 (grpo).\nrecipe: grpo\n")
    assert main(["translate", str(file), "--strict"]) == 1
    capsys.readouterr()
    assert main(["translate", str(file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["options"]["steps"] == 5
    assert data["lines"][2]["verdict"] == "unknown"
    assert main(["translate", str(tmp_path / "absent.py")]) == 2


def test_hostile_text_cannot_drive_the_terminal(tmp_path, capsys):
    text = grpo("output_dir='\\x1b[2J[red]x'", "weird=f('\x1b]0;owned\x07')")
    file = written(tmp_path, "a.py", text)
    assert main(["translate", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[red]x" in shown
