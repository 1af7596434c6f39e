"""Policies by name: a run is its last checkpoint, small policies come back as they were."""

from __future__ import annotations

import json

import pytest
import torch

from anypo.backends.gymnasium import GymTask
from anypo.backends.policies import load_policy, resolved, run_of
from anypo.core.errors import UsageError
from anypo.policies.categorical import CategoricalPolicy
from anypo.policies.flow import FlowPolicy
from anypo.tasks.generators import EightGaussians
from anypo.tasks.synthetic import first_letter


@pytest.fixture
def run(tmp_path):
    """A run's folder with two checkpoints of different weights."""
    (tmp_path / "anypo.json").write_text("{}")
    for step in (2, 10):
        CategoricalPolicy(4, 2, hidden=8, seed=step).save(tmp_path / f"checkpoint-{step}")
    return tmp_path


def test_a_run_is_its_last_checkpoint(run):
    assert resolved(str(run)) == str(run / "checkpoint-10")
    assert resolved(str(run / "checkpoint-2")) == str(run / "checkpoint-2")
    assert resolved("smollm2-135m") == "smollm2-135m"
    assert run_of(str(run)) == run_of(str(run / "checkpoint-2")) == run
    assert run_of("tiny") is run_of("") is None
    same = CategoricalPolicy(4, 2, hidden=8, seed=10)
    for a, b in zip(load_policy(str(run)).module.parameters(), same.module.parameters()):
        assert torch.equal(a, b)


def test_a_run_without_a_checkpoint_says_so(tmp_path):
    (tmp_path / "anypo.json").write_text("{}")
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        load_policy(str(tmp_path))


def test_small_policies_keep_what_they_were_saved_with(run, tmp_path):
    policy = FlowPolicy(2, steps=4, noise=0.3, hidden=8, depth=2, seed=3)
    policy.save(tmp_path / "flow")
    again = load_policy(str(tmp_path / "flow"), task=EightGaussians())
    assert again.settings() == policy.settings()
    assert torch.equal(again.sample(3), policy.sample(3))
    assert load_policy(str(run), task=GymTask("CartPole-v1")).hidden == 8


@pytest.mark.parametrize(
    ("task", "options", "sentence"),
    [
        (first_letter(), {}, "is of kind control, task 'first_letter' of kind language"),
        (GymTask("Acrobot-v1"), {}, "observation_size 4, and Acrobot-v1 has 6"),
        (None, {"lora": 2}, "has no option 'lora'"),
    ],
)
def test_a_small_policy_refuses_what_does_not_fit(run, task, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        load_policy(str(run), task=task, **options)


def test_a_policy_for_no_task_wants_a_name_or_a_folder():
    with pytest.raises(UsageError, match="name a policy"):
        load_policy("")
    with pytest.raises(UsageError, match="'flow' is made for a task"):
        load_policy("flow")
    assert load_policy("tiny").kind == "language"


def test_a_language_model_of_the_same_name_is_no_small_policy(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"name": "flow", "model_type": "llama"}))
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_policy(str(tmp_path))


def test_a_run_is_computed_in_the_precision_that_it_was_trained_in(trained, adapted):
    for run in (trained, adapted):
        facts = json.loads((run / "anypo.json").read_text())["policy"]
        assert load_policy(str(run)).net.precision == facts["precision"] == "float32"
        assert load_policy(str(run), precision="bfloat16").net.precision == "bfloat16"
