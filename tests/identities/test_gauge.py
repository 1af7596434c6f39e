"""The gauge of entropies: its scale cancels, and its guards only act where nothing is spread."""

from __future__ import annotations

import torch

from anypo.pieces.advantage.gauge import Gauge
from tests.identities.small import steps


def test_a_gauge_reaches_1_however_small_its_spread():
    logs = torch.tensor([0.0, 1e-5, 3e-5], dtype=torch.float64)
    got = Gauge(pivot=0.5)(steps([3], entropy_old=logs.exp()))
    torch.testing.assert_close(got, torch.tensor([-1.0, 0.0, 1.0]).double(), rtol=1e-9, atol=0)


def test_what_is_hardly_above_the_pivot_is_not_blown_up_to_1():
    got = Gauge(pivot=0.5)(steps([3], entropy_old=[1e-6, 1.0, 1.0 + 1e-9]))
    assert 0 < float(got[2]) < 0.1
