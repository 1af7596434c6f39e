"""Every head that a piece owns gives the column of its name, whatever the policy."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anypo.core.batch import Batch
from anypo.policies.categorical import CategoricalPolicy
from anypo.policies.policy import evaluated
from tests.toys import ToyPolicy, toy_batch


def test_the_next_value_wants_the_critic():
    heads = nn.ModuleDict({"value": nn.Linear(1, 1), "log_z": nn.Linear(1, 1)})
    assert evaluated(frozenset({"logp", "value_next"}), heads) == ["value"]
    assert evaluated(frozenset({"log_z", "logp"}), heads) == ["log_z"]


@pytest.mark.parametrize("names", [{"log_z"}, {"log_z", "value"}, {"value"}])
def test_a_column_is_its_heads_alone(names):
    policy = CategoricalPolicy(3, 2)
    heads = nn.ModuleDict({"value": policy.head(1), "log_z": nn.Linear(3, 1)})
    seen = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    inputs = {"observation": seen, "action": torch.tensor([0, 1, 1, 0])}
    batch = Batch({}, {"seq": torch.arange(4), "traj": torch.arange(4)}, {}, inputs)
    got = policy.columns(batch, frozenset(names), heads)
    assert set(got) == names
    for name in names:
        torch.testing.assert_close(got[name], heads[name](seen)[:, 0])


def test_the_toy_of_the_properties_does_so_too():
    batch = toy_batch([[2, 1]])
    heads = nn.ModuleDict({"log_z": ToyPolicy().head(1)})
    got = ToyPolicy().columns(batch, frozenset({"log_z"}), heads)["log_z"]
    expected = torch.cat([heads["log_z"](x)[:, 0] for x in batch.inputs["features"]])
    torch.testing.assert_close(got, expected)
