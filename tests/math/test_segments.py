"""Segment operations against plain loops over steps."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anypo.math import kl, segments

values = st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 3)), min_size=1, max_size=20)


def split(pairs):
    x = torch.tensor([v for v, _ in pairs], dtype=torch.float64)
    ids, count = segments.dense(torch.tensor([i for _, i in pairs]))
    return x, ids, count


@given(values)
def test_reductions_match_a_loop(pairs):
    x, ids, count = split(pairs)
    for k in range(count):
        unit = x[ids == k]
        n = len(unit)
        assert segments.segment_sum(x, ids, count)[k] == pytest.approx(float(unit.sum()))
        assert segments.segment_mean(x, ids, count)[k] == pytest.approx(float(unit.mean()))
        assert segments.segment_extreme(x, ids, count, "max")[k] == unit.max()
        assert segments.segment_extreme(x, ids, count, "min")[k] == unit.min()
        for q in (0.0, 0.3, 0.5, 1.0):
            expected = float(torch.quantile(unit, q))
            assert segments.segment_quantile(x, ids, count, q)[k] == pytest.approx(expected)
        for ddof in (0, 1):
            sd = math.sqrt(float(((unit - unit.mean()) ** 2).sum()) / max(n - ddof, 1))
            got = float(segments.segment_std(x, ids, count, ddof)[k])
            assert got == pytest.approx(sd if n > 1 else 0.0, abs=1e-12)


@given(values, st.floats(-1, 1))
def test_scan_matches_a_loop_and_restarts_at_each_unit(pairs, a):
    x, ids, _ = split(pairs)
    got = segments.scan(x, torch.full_like(x, a), ids)
    for n in range(len(x)):
        later = [m for m in range(n, len(x)) if ids[m] == ids[n]]
        assert float(got[n]) == pytest.approx(sum(a**j * float(x[m]) for j, m in enumerate(later)))


@given(values)
def test_rank_counts_smaller_members_of_the_unit(pairs):
    x, ids, _ = split(pairs)
    got = segments.segment_rank(x, ids)
    for n in range(len(x)):
        unit = x[ids == ids[n]]
        smaller, equal = int((unit < x[n]).sum()), int((unit == x[n]).sum())
        assert float(got[n]) == pytest.approx(smaller + (equal - 1) / 2)


def test_std_of_equal_values_is_exactly_zero():
    x = torch.full((3,), 0.1, dtype=torch.float64)
    assert segments.segment_std(x, torch.zeros(3, dtype=torch.long), 1).item() == 0.0


def test_a_nan_does_not_cross_units():
    x = torch.tensor([1.0, math.nan, 2.0, 3.0])
    ids = torch.tensor([0, 1, 0, 0])
    assert segments.scan(x, torch.ones(4), ids)[[0, 2, 3]].tolist() == [6.0, 5.0, 3.0]
    assert segments.segment_sum(x, ids, 2)[0] == 6.0


def test_shift_takes_the_next_step_of_the_unit():
    x, ids = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 1, 0, 1])
    assert segments.shift(x, ids, -1.0).tolist() == [3.0, 4.0, -1.0, -1.0]


def test_kl_values_and_expected_gradients():
    """cases.md: 3 classes; k1 has no pathwise gradient, k2 the true one, k3 the forward KL's."""
    theta = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    ref = torch.log_softmax(torch.tensor([0.0, 0.5, -0.5], dtype=torch.float64), 0)
    logp = torch.log_softmax(theta, 0)
    p = logp.exp()
    exact = (p * (logp - ref)).sum()
    assert float(exact.detach()) == pytest.approx(0.145517, abs=1e-6)
    (true,) = torch.autograd.grad(exact, theta, retain_graph=True)
    assert true.tolist() == pytest.approx([0.0614, -0.2129, 0.1515], abs=5e-5)
    expected = {"k1": [0.0, 0.0, 0.0], "k2": true.tolist(), "k3": [0.1051, -0.2564, 0.1513]}
    for form, grad in expected.items():
        value = (p.detach() * kl.estimate(logp, ref, form)).sum()
        (got,) = torch.autograd.grad(value, theta, retain_graph=True)
        assert got.tolist() == pytest.approx(grad, abs=5e-5), form
        if form != "k2":
            assert float(value.detach()) == pytest.approx(float(exact.detach()), abs=1e-9)


def test_kl_of_one_token():
    p, q = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    got = {form: float(kl.estimate(p, q, form)) for form in ("k1", "k2", "k3", "abs")}
    assert got == pytest.approx({"k1": 0.6931, "k2": 0.2402, "k3": 0.1931, "abs": 0.6931}, abs=5e-5)
    assert float(kl.estimate(q, p, "abs")) == pytest.approx(0.6931, abs=5e-5)
    with pytest.raises(ValueError, match="k9"):
        kl.estimate(p, q, "k9")


def test_gaussian_kl_is_the_closed_form():
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]])
    assert kl.gaussian(a, b, torch.tensor([0.5])).item() == pytest.approx(5 / 0.5)
