"""Weights on disk: exact round trips, and files that are not what they should be."""

from __future__ import annotations

import json

import pytest
import torch

from anypo.core.errors import UsageError
from anypo.policies.categorical import CategoricalPolicy
from anypo.policies.flow import FlowPolicy
from anypo.policies.swap import snapshot

POLICIES = {
    "categorical": lambda seed, **sizes: CategoricalPolicy(4, 2, seed=seed, **sizes),
    "flow": lambda seed, **sizes: FlowPolicy(2, seed=seed, **sizes),
}


@pytest.fixture(params=sorted(POLICIES))
def make(request):
    return POLICIES[request.param]


def test_weights_come_back_bit_for_bit_and_in_place(make, tmp_path):
    saved, other = make(seed=1), make(seed=2)
    parameters = list(other.module.parameters())
    saved.save(tmp_path / "new" / "folder")
    other.load(tmp_path / "new" / "folder")
    assert all(a is b for a, b in zip(parameters, other.module.parameters()))
    for name, x in snapshot(saved.module).items():
        assert torch.equal(snapshot(other.module)[name], x)
    config = json.loads((tmp_path / "new" / "folder" / "config.json").read_text())
    assert config == saved.settings()


def test_a_missing_truncated_or_foreign_file_is_refused_and_nothing_changes(make, tmp_path):
    policy = make(seed=1)
    before = snapshot(policy.module)
    with pytest.raises(UsageError, match=r"holds no model\.safetensors"):
        policy.load(tmp_path)

    path = tmp_path / "model.safetensors"
    make(seed=2).save(tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match="truncated"):
        policy.load(tmp_path)

    make(seed=2, hidden=8).save(tmp_path)
    with pytest.raises(UsageError, match="another model"):
        policy.load(tmp_path)
    for name, x in snapshot(policy.module).items():
        assert torch.equal(before[name], x)
