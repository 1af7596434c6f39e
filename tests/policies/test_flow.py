"""The flow policy: pretraining, the recorded paths, and what is recomputed from them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.math import kl
from anypo.policies.flow import FlowPolicy
from anypo.tasks.generators import EightGaussians

NEEDS = frozenset({"logp", "mean", "value", "value_next"})
TASK = EightGaussians()


class Affine(nn.Module):
    """v(x, t) = w·x + t: a velocity that can be worked by hand."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, x, t):
        return self.w * x + t[:, None]


class PlusTime(nn.Module):
    """A critic that can be checked by eye: first coordinate + 10·t."""

    def forward(self, x, t):
        return x[:, :1] + 10 * t[:, None]


def affine(**settings) -> FlowPolicy:
    policy = FlowPolicy(2, **settings)
    policy.module = Affine(0.5)
    return policy


def noise(rows: int, steps: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, steps + 1, 2, generator=torch.Generator().manual_seed(seed))


def as_batch(path: dict) -> Batch:
    rows, steps = path["t"].shape
    ids = {
        "seq": torch.arange(rows * steps),
        "traj": torch.arange(rows).repeat_interleave(steps),
    }
    inputs = {k: path[k].flatten(0, 1) for k in ("x", "x_next", "t", "dt", "scale")}
    return Batch({"reward": torch.zeros(rows * steps)}, ids, {}, inputs)


def test_pretraining_finds_every_mode():
    policy = FlowPolicy.for_task(TASK)
    x = policy.sample(2000)
    distance = torch.cdist(x, TASK.centre(torch.arange(8)))
    share = (distance < TASK.reach).float().mean(0)
    assert float(share.sum()) > 0.88
    assert float(share.min()) > 0.08
    assert float(share.max()) < 0.17
    end = policy.denoise(noise(2000, 10))["x_next"][:, -1]
    near = (torch.cdist(end, TASK.centre(torch.arange(8))) < TASK.reach).any(1)
    assert float(near.float().mean()) > 0.82


def test_pretraining_is_remembered_but_not_shared():
    first = FlowPolicy.for_task(TASK)
    with torch.no_grad():
        first.module.net[-1].bias.add_(1)
    second = FlowPolicy.for_task(EightGaussians(), steps=5)
    assert second.steps == 5
    torch.testing.assert_close(second.module.net[-1].bias + 1, first.module.net[-1].bias)


def test_a_path_follows_the_sde_step_by_step():
    policy = affine(steps=3)
    z = noise(4, 3)
    path = policy.denoise(z)
    times = [1.0, 2 / 3, 1 / 3, 0.0]
    x = z[:, 0].double()
    for k in range(3):
        t, dt = times[k], times[k + 1] - times[k]
        s2 = 0.49 * t / (1 - (times[1] if k == 0 else t))
        v = 0.5 * x + t
        mean = x + (v + s2 / (2 * t) * (x + (1 - t) * v)) * dt
        std = (s2 * -dt) ** 0.5
        torch.testing.assert_close(path["std"][:, k], torch.full((4,), std, dtype=torch.float64))
        torch.testing.assert_close(path["x"][:, k].double(), x, rtol=1e-5, atol=1e-5)
        x = mean + std * z[:, k + 1].double()
        torch.testing.assert_close(path["x_next"][:, k].double(), x, rtol=1e-5, atol=1e-5)
        one = -(z[:, k + 1].double() ** 2) / 2 - math.log(std * (2 * math.pi) ** 0.5)
        torch.testing.assert_close(path["logp"][:, k], one.mean(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_recomputed_logp_equals_the_recorded_one(reduce):
    policy = FlowPolicy.for_task(TASK, reduce=reduce)
    path = policy.denoise(noise(96, 10))
    logp = policy.columns(as_batch(path), frozenset({"logp"}), {})["logp"].detach()
    assert float((logp - path["logp"].flatten()).abs().max()) < (1e-6 if reduce == "mean" else 2e-6)
    assert float(path["logp"].std()) > 0.1


def test_logp_and_mean_are_differentiable_and_have_the_gradient_by_hand():
    """∂ mean/∂w = x·(1 + s²(1 − t)/(2t))·dt, and ∂ logp/∂ mean = (x_next − mean)/(d·std²)."""
    policy = affine(steps=4)
    batch = as_batch(policy.denoise(noise(3, 4)))
    columns = policy.columns(batch, NEEDS - {"value", "value_next"}, {})
    x, x_next, t, dt, s = (batch.inputs[k].double() for k in ("x", "x_next", "t", "dt", "scale"))
    slope = x * ((1 + s**2 * (1 - t) / (2 * t)) * dt)[:, None]
    (grad,) = torch.autograd.grad(columns["mean"].sum(), policy.module.w, retain_graph=True)
    torch.testing.assert_close(grad.double(), slope.sum(), rtol=1e-5, atol=1e-5)
    std = (s * (-dt).sqrt())[:, None]
    expected = ((x_next - columns["mean"].detach().double()) / std**2 * slope).sum() / 2
    (grad,) = torch.autograd.grad(columns["logp"].sum(), policy.module.w)
    torch.testing.assert_close(grad.double(), expected, rtol=1e-4, atol=1e-4)


def test_the_next_value_is_that_of_the_next_point_and_zero_at_data():
    policy = affine(steps=2)
    path = policy.denoise(noise(3, 2))
    batch = as_batch(path)
    columns = policy.columns(batch, NEEDS, {"value": PlusTime()})
    first = path["x"][:, :, 0] + torch.tensor([10.0, 5.0])
    torch.testing.assert_close(columns["value"], first.flatten())
    ahead = torch.stack([path["x_next"][:, 0, 0] + 5, torch.zeros(3)], 1)
    torch.testing.assert_close(columns["value_next"], ahead.flatten())


def test_columns_of_a_step_do_not_depend_on_the_split():
    policy = FlowPolicy(2, steps=4)
    batch = as_batch(policy.denoise(noise(5, 4)))
    heads = {"value": policy.head(1)}
    order = torch.tensor([17, 3, 4, 11])
    whole, part = (policy.columns(b, NEEDS, heads) for b in (batch, batch.take(order)))
    assert set(part) == NEEDS
    for name, x in part.items():
        torch.testing.assert_close(x, whole[name][order], rtol=1e-5, atol=1e-6)


def test_kl_to_the_reference_is_zero_until_the_weights_move():
    policy = FlowPolicy(2, steps=4)
    batch = as_batch(policy.denoise(noise(5, 4)))
    reference = policy.snapshot()

    def divergence() -> torch.Tensor:
        with torch.no_grad():
            mean = policy.columns(batch, frozenset({"mean"}), {})["mean"]
            with policy.using(reference):
                mean_ref = policy.columns(batch, frozenset({"mean"}), {})["mean"]
        return kl.gaussian(mean, mean_ref, batch.inputs["scale"])

    assert not divergence().any()
    with torch.no_grad():
        policy.module.net[-1].bias.add_(0.5)
    assert float(divergence().min()) > 0


def test_the_deterministic_flow_solves_its_equation():
    """dx/dt = x/2 + t from t = 1 to 0 has x(0) = (x(1) + 6)/√e − 4."""
    policy = affine()
    start = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    policy.module.forward = lambda x, t: 0 * x  # standing still shows where the flow starts
    start = policy.sample(5, seed=4)
    del policy.module.forward
    end = policy.sample(5, steps=4000, seed=4)
    expected = (start + 6) * torch.tensor(-0.5).exp() - 4
    torch.testing.assert_close(end, expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("settings", [{"noise": 0.0}, {"steps": 0}])
def test_a_policy_without_a_density_is_refused(settings):
    with pytest.raises(UsageError, match="noise > 0"):
        FlowPolicy(2, **settings)


def test_float64_weights_give_float64_columns():
    policy = affine(steps=2)
    policy.module.double()
    columns = policy.columns(as_batch(policy.denoise(noise(3, 2))), NEEDS, {"value": PlusTime()})
    assert {x.dtype for x in columns.values()} == {torch.float64}
