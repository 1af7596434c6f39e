"""Initial weights: the gains that the details of PPO name, out of an explicit stream."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from anypo.policies.categorical import CategoricalPolicy
from anypo.policies.flow import FlowPolicy
from anypo.policies.networks import TimedMLP, mlp


def gains(net: nn.Sequential) -> list[float]:
    weights = [layer.weight.detach() for layer in net if isinstance(layer, nn.Linear)]
    values = [torch.linalg.svdvals(w) for w in weights]
    assert all(float(v.max() - v.min()) < 1e-5 for v in values), "orthogonal: equal singular values"
    return [float(v.mean()) for v in values]


def test_policy_and_critic_have_the_published_gains_and_zero_biases():
    policy = CategoricalPolicy(4, 2)
    for net, last in ((policy.module, 0.01), (policy.head(1), 1.0)):
        assert gains(net) == pytest.approx([math.sqrt(2), math.sqrt(2), last], rel=1e-5)
        assert not any(layer.bias.any() for layer in net if isinstance(layer, nn.Linear))
        assert [type(layer) for layer in net[1::2]] == [nn.Tanh, nn.Tanh]


def test_initial_weights_come_from_the_seed_and_leave_the_global_stream_alone():
    state = torch.get_rng_state()
    same, again, other = (CategoricalPolicy(4, 2, seed=s) for s in (3, 3, 4))
    FlowPolicy(2).head(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(same.module[0].weight, again.module[0].weight)
    assert not torch.equal(same.module[0].weight, other.module[0].weight)
    assert not torch.equal(same.module[0].weight, same.head(1)[0].weight), "the critic is separate"


def test_a_perceptron_is_the_composition_of_its_layers():
    net = mlp([3, 5, 2], nn.Tanh, 1.0, torch.Generator().manual_seed(0))
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(net(x), (x @ net[0].weight.T).tanh() @ net[2].weight.T)


def test_time_enters_as_the_first_four_half_waves():
    net = TimedMLP(2, 1, 4, 1, torch.Generator().manual_seed(0))
    net.net = nn.Identity()
    x, t = torch.tensor([[0.3, -0.4]]), torch.tensor([0.5])
    phase = [k * math.pi / 4 for k in (1, 2, 3, 4)]
    expected = [0.3, -0.4, *map(math.sin, phase), *map(math.cos, phase)]
    torch.testing.assert_close(net(x, t), torch.tensor([expected]))
