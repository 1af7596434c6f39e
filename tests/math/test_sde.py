"""The Flow-GRPO step: exact reductions, and an analytic Gaussian."""

from __future__ import annotations

import math

import pytest
import torch

from anypo.math import kl, sde


def close(actual: torch.Tensor, expected) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-8)


def test_a_number_per_row_equals_a_number_for_all():
    x, v = torch.randn(2, 3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t, dt, scale = (torch.tensor(u, dtype=torch.float64) for u in (0.6, -0.2, 0.9))
    rows = [u.expand(3) for u in (t, dt, scale)]
    mean = sde.step_mean(x, v, t, dt, scale)
    assert torch.equal(sde.step_mean(x, v, *rows), mean)
    logp = sde.step_logp(x, mean, scale)
    assert logp.shape == (3,)
    assert torch.equal(sde.step_logp(x, mean, rows[2]), logp)


def test_schedules_are_even_or_shifted_and_run_from_noise_to_data():
    close(sde.schedule(5), [1.0, 0.8, 0.6, 0.4, 0.2, 0.0])
    close(sde.schedule(3, shift=3), [1.0, 6 / 7, 0.6, 0.0])  # 3u / (1 + 2u)


def test_the_noise_scale_is_capped_by_the_second_time_only_at_the_start():
    t = torch.tensor([1.0, 0.9, 0.5, 0.2], dtype=torch.float64)
    close(sde.noise_scale(t, 0.9, 0.7), [0.7 * 10**0.5, 0.7 * 3, 0.7, 0.35])


def test_without_noise_the_step_is_the_euler_step_exactly():
    x, v = torch.randn(2, 50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    t, dt = torch.tensor(0.7), torch.tensor(-0.1)
    scale = sde.noise_scale(t, 0.9, 0.0)
    assert torch.equal(sde.step_mean(x, v, t, dt, scale), x + v * dt)
    assert float(sde.step_std(scale, dt)) == 0.0


def gaussian_end(steps: int, noise: float, m: float, s: float) -> tuple[float, float, float]:
    """Time, mean and variance before the last step, for data N(m, s²).

    The velocity E[ε − x0 | x_t] is then affine in x, so mean and variance propagate exactly.
    """
    times, mean, var = sde.schedule(steps), 0.0, 1.0
    for k in range(steps - 1):
        t, dt = times[k], times[k + 1] - times[k]
        scale = sde.noise_scale(t, times[1], noise)
        slope = (t - (1 - t) * s**2) / ((1 - t) ** 2 * s**2 + t**2)
        x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        v = -m + slope * (x - (1 - t) * m)
        low, high = sde.step_mean(x, v, t, dt, scale).flatten().tolist()
        mean = low + (high - low) * mean
        var = (high - low) ** 2 * var + float(sde.step_std(scale, dt)) ** 2
    return float(times[-2]), mean, var


@pytest.mark.parametrize("noise", [0.7, 1.0])
@pytest.mark.parametrize(("steps", "error"), [(20, 8e-3), (200, 2.5e-3), (2000, 1.5e-3)])
def test_stochastic_steps_keep_the_marginals_of_gaussian_data(steps, error, noise):
    """Whatever the noise, x_t has mean (1 − t)·m and variance (1 − t)²·s² + t², up to O(dt)."""
    t, mean, var = gaussian_end(steps, noise, m=1.5, s=0.6)
    assert mean == pytest.approx((1 - t) * 1.5, abs=1e-9)
    assert var == pytest.approx((1 - t) ** 2 * 0.36 + t**2, abs=error)


def test_logp_of_a_sampled_point_depends_on_its_noise_alone():
    draw = torch.Generator().manual_seed(2)
    mean, z = torch.randn(2, 40, 3, dtype=torch.float64, generator=draw)
    std = torch.rand(40, dtype=torch.float64, generator=draw) + 0.1
    x_next = mean + std[:, None] * z
    one = -(z**2) / 2 - std.log()[:, None] - 0.5 * math.log(2 * math.pi)
    close(sde.step_logp(x_next, mean, std, "mean"), one.mean(1))
    close(sde.step_logp(x_next, mean, std, "sum"), one.sum(1))


def test_the_gradient_of_logp_pulls_the_mean_to_the_point():
    mean = torch.tensor([[0.5, -1.0]], dtype=torch.float64, requires_grad=True)
    x_next, std = torch.tensor([[1.5, -3.0]], dtype=torch.float64), torch.tensor([0.5]).double()
    (exact,) = torch.autograd.grad(sde.step_logp(x_next, mean, std, "sum").sum(), mean)
    close(exact, [[4.0, -8.0]])
    (averaged,) = torch.autograd.grad(sde.step_logp(x_next, mean, std, "mean").sum(), mean)
    close(averaged, [[2.0, -4.0]])


def test_kl_is_that_of_two_gaussians_and_zero_for_equal_means():
    draw = torch.Generator().manual_seed(3)
    mean, other = torch.randn(2, 6, 4, dtype=torch.float64, generator=draw)
    std = torch.rand(6, dtype=torch.float64, generator=draw) + 0.1
    normal = [torch.distributions.Normal(m, std[:, None]) for m in (mean, other)]
    close(kl.gaussian(mean, other, std), torch.distributions.kl_divergence(*normal).sum(1))
    assert not kl.gaussian(mean, mean, std).any()
