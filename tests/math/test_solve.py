"""Trust-region steps: length, direction, and what no change of coordinates may change."""

from __future__ import annotations

import math

import pytest
import torch

from anypo.math.solve import backtrack, conjugate_gradient, trust_region_step

G = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)


def spd(seed: int = 0) -> torch.Tensor:
    a = torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return a @ a.T + 0.5 * torch.eye(3, dtype=torch.float64)


def test_conjugate_gradients_solve_in_as_many_steps_as_dimensions():
    a = spd()
    exact = torch.linalg.solve(a, G)
    torch.testing.assert_close(conjugate_gradient(a.mv, G, 3), exact, rtol=1e-6, atol=0)
    assert float((conjugate_gradient(a.mv, G, 1) - exact).norm()) > 1e-3
    assert conjugate_gradient(a.mv, torch.zeros_like(G)).tolist() == [0.0] * 3


def test_with_a_flat_metric_the_step_is_along_the_gradient_and_of_known_length():
    found = trust_region_step(lambda v: v, G, radius=0.02, damping=0.0)
    torch.testing.assert_close(found.direction, G, rtol=1e-7, atol=0)
    torch.testing.assert_close(found.step, -G / G.norm() * math.sqrt(0.04), rtol=1e-6, atol=0)


@pytest.mark.parametrize("damping", [0.0, 0.1, 2.0])
def test_the_full_step_ends_at_the_radius_and_lowers_the_loss(damping):
    f = spd()
    found = trust_region_step(f.mv, G, 0.01, damping)
    quadratic = 0.5 * found.step @ (f.mv(found.step) + damping * found.step)
    assert float(quadratic) == pytest.approx(0.01, rel=1e-6)
    assert float(found.kl) == pytest.approx(float(quadratic))
    assert float(found.step @ G) < 0


def test_without_damping_coordinates_do_not_matter():
    """θ = Jφ: the metric is JᵀFJ, the gradient Jᵀg, and J times the step is the same step."""
    f, j = spd(), spd(1)
    plain = trust_region_step(f.mv, G, damping=0.0).step
    other = trust_region_step((j.T @ f @ j).mv, j.T @ G, damping=0.0).step
    torch.testing.assert_close(j @ other, plain, rtol=1e-5, atol=0)


def test_backtracking_takes_the_longest_accepted_step():
    assert backtrack(lambda s: float(s.norm()) < 2, G, 0.5).tolist() == (G / 2).tolist()
    assert backtrack(lambda s: True, G).tolist() == G.tolist()
    assert backtrack(lambda s: False, G).tolist() == [0.0] * 3
    assert backtrack(lambda s: float(s.norm()) < 2, G, 0.9, tries=2).tolist() == [0.0] * 3
