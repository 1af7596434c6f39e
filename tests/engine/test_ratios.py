"""Numbers about importance ratios."""

from __future__ import annotations

import math

import pytest
import torch

from anypo.engine.metrics import ratios


def test_ratios_have_their_extremes_and_quantiles():
    order = torch.randperm(101, generator=torch.Generator().manual_seed(0))
    found = ratios(torch.linspace(-1, 1, 101)[order])
    wanted = {"min": -1.0, "p05": -0.9, "p95": 0.9, "max": 1.0}
    assert found == pytest.approx(
        {f"ratio/{name}": math.exp(x) for name, x in wanted.items()} | {"ratio/capped": 0.0}
    )


def test_a_single_ratio_is_all_of_them_and_a_capped_one_is_counted():
    found = ratios(torch.tensor([20.0]))
    assert found.pop("ratio/capped") == 1.0
    assert {*found.values()} == {math.exp(20)}
