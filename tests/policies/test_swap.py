"""Running a module under other weights, and putting it back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anypo.policies.swap import snapshot, swapped


def network() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    for k, p in enumerate(net.parameters()):
        nn.init.normal_(p, generator=torch.Generator().manual_seed(k))
    return net


X = torch.linspace(-1, 1, 12).reshape(4, 3)


def test_inside_the_block_the_snapshot_answers_and_outside_the_trained_weights():
    net = network()
    weights, first = snapshot(net), net(X).detach()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0.5)
    trained = net(X).detach()
    assert (trained - first).abs().max() > 0.1
    with swapped(net, weights):
        assert torch.equal(net(X), first)
    assert torch.equal(net(X), trained)


def test_parameters_stay_the_same_objects_even_after_an_error():
    net = network()
    before = [id(p) for p in net.parameters()]
    with pytest.raises(RuntimeError, match="inside"), swapped(net, snapshot(net)):
        raise RuntimeError("inside")
    assert [id(p) for p in net.parameters()] == before
    assert all(p.requires_grad for p in net.parameters())


def test_graphs_made_before_and_inside_the_block_stay_valid():
    net = network()
    weights = {name: torch.zeros_like(p) for name, p in snapshot(net).items()}
    (expected,) = torch.autograd.grad(net(X).square().sum(), net[0].weight)
    x = X.clone().requires_grad_()
    outside = net(X).square().sum()
    with swapped(net, {"2.weight": weights["2.weight"] + 1}):
        inside = net(x).sum()
    inside.backward()
    hidden = torch.tanh(X @ net[0].weight.T + net[0].bias)
    by_hand = 3 * (1 - hidden**2) @ net[0].weight  # each of the three outputs sums the hidden units
    torch.testing.assert_close(x.grad, by_hand.detach())
    assert net[2].weight.grad is None, "a replaced weight is a constant"
    net.zero_grad()
    outside.backward()
    torch.testing.assert_close(net[0].weight.grad, expected)


def test_a_tied_weight_is_replaced_wherever_it_is_used():
    net = network()
    net[2].weight = net[0].weight
    weights = {"0.weight": torch.eye(3), "0.bias": torch.zeros(3), "2.bias": torch.zeros(3)}
    with swapped(net, weights):
        torch.testing.assert_close(net(X), X.tanh())
    assert net[2].weight is net[0].weight


def test_a_frozen_parameter_is_not_copied():
    net = network()
    net[0].requires_grad_(False)
    assert set(snapshot(net)) == {"2.weight", "2.bias"}


def test_a_snapshot_does_not_follow_the_weights():
    net = network()
    kept = snapshot(net)["0.bias"].clone()
    weights = snapshot(net)
    with torch.no_grad():
        net[0].bias.add_(1)
    assert torch.equal(weights["0.bias"], kept)


@pytest.mark.parametrize(("name", "columns"), [("0.wieght", 3), ("0.weight", 2)])
def test_weights_of_another_module_are_refused(name, columns):
    weights = {name: torch.ones(3, columns)}
    with pytest.raises(ValueError, match="no parameter"), swapped(network(), weights):
        pass
