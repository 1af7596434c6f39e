"""The floor: products with the model's own shapes, timed at their best, and bytes."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from anypo.backends import floor, tiny
from anypo.backends.floor import Floor, Layer, Product, cached_values, layers_of, products
from anypo.backends.policies import load_policy
from anypo.core.clock import Lap, Pass

BOTH = ("dx", "dw")
VOCABULARY = len(tiny.CHARACTERS) + 1


def lap(cached: int = 0, **passes: tuple[int, int]) -> Lap:
    """One pass of each of these kinds, with its tokens and scored positions."""
    return Lap({}, Counter(Pass(kind, *sizes) for kind, sizes in passes.items()), cached)


@pytest.fixture
def policy():
    """The character model, in float32."""
    return load_policy("tiny", precision="float32")


@pytest.fixture
def steady(monkeypatch):
    """A machine that makes 10⁹ multiplications and reads 10⁶ bytes in a second, always."""
    asked: Counter[Product] = Counter()

    def timings(shape: Product, count: int, *_: object) -> list[float]:
        asked[shape] += count
        return [shape.rows * shape.inputs * shape.outputs / 1e9] * count

    monkeypatch.setattr(floor, "timings", timings)
    monkeypatch.setattr(floor, "bandwidth", lambda *_: 1e6)
    return asked


def test_the_layers_are_the_models_own(policy):
    """Two layers of width 64: q and o, k and v of half the heads, gate and up, and down."""
    assert layers_of(policy.net.decoder) == {
        Layer(64, 64, ("y",), BOTH): 2 * 2,
        Layer(64, 32, ("y",), BOTH): 2 * 2,
        Layer(64, 128, ("y",), BOTH): 2 * 2,
        Layer(128, 64, ("y",), BOTH): 2,
    }
    assert Floor(policy.net).readout == Layer(64, VOCABULARY, ("y",), BOTH)


def test_layers_multiply_all_tokens_and_the_readout_those_that_are_scored(policy):
    layers, readout = layers_of(policy.net.decoder), Layer(64, VOCABULARY, ("y",), BOTH)
    forward = products(layers, readout, Pass("forward", 10, 3))
    assert forward == {
        Product("y", 10, 64, 64): 4,
        Product("y", 10, 64, 32): 4,
        Product("y", 10, 64, 128): 4,
        Product("y", 10, 128, 64): 2,
        Product("y", 3, 64, VOCABULARY): 1,
    }
    backward = products(layers, readout, Pass("backward", 10, 3))
    assert backward == {p._replace(of=of): n for p, n in forward.items() for of in BOTH}
    unscored = products(layers, readout, Pass("prefill", 9, 0))
    assert not any(p.outputs == VOCABULARY for p in unscored)
    assert not products(layers, readout, Pass("optimizer", 10, 3))


def test_an_adapter_has_thin_products_backwards_and_frozen_weights_no_gradient():
    net = load_policy("tiny", lora=4).net
    found = layers_of(net.decoder)
    assert found is not None
    assert found[Layer(64, 128, ("y",), ("dx",))] == 4
    assert found[Layer(64, 4, (), ("y", "dw"))] == 2 * 6  # A of q, k, v, o, gate and up
    assert found[Layer(4, 128, (), ("dx", "dw"))] == 2 * 2  # B of gate and up
    assert sum(found.values()) == 3 * 2 * 7
    whole = Floor(load_policy("tiny").net)
    assert Floor(net).weights == whole.weights  # merged: an adapter is in the layers' weights


def test_a_layer_of_gpt2_is_linear_and_experts_are_not_known():
    config = GPT2Config(vocab_size=20, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    found = layers_of(GPT2LMHeadModel(config).transformer)
    assert found == {
        Layer(8, 24, ("y",), BOTH): 1,
        Layer(8, 8, ("y",), BOTH): 1,
        Layer(8, 32, ("y",), BOTH): 1,
        Layer(32, 8, ("y",), BOTH): 1,
    }
    assert cached_values(config) == 2 * 8
    experts = nn.Module()
    experts.register_parameter("gates", nn.Parameter(torch.zeros(3, 4, 4)))
    assert layers_of(nn.Sequential(nn.Linear(4, 4), experts)) is None


def test_parts_are_products_and_bytes(policy, steady):
    """All sizes have fewer than seven binary digits: no length is rounded."""
    inner = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    head = 64 * VOCABULARY
    made = Floor(policy.net)
    whole = lap(300, prefill=(30, 2), decode=(8, 8), forward=(50, 20), backward=(50, 20))
    whole.passes[Pass("decode", 8, 8)] = 5
    whole.passes[Pass("optimizer", 1000, 0)] = 2
    made.improve([whole])
    read = 4 * (5 * (inner + head) + 300 * 2 * 2 * 2 * 16)
    assert made.parts(whole) == pytest.approx(
        {
            "prefill": (30 * inner + 2 * head) / 1e9,
            "decode": 5 * (8 * inner + 8 * head) / 1e9,
            "forward": (50 * inner + 20 * head) / 1e9,
            "backward": 2 * (50 * inner + 20 * head) / 1e9,
            "reading": read / 1e6,
            "optimizer": 2 * 1000 * 28 / 1e6,
        }
    )
    assert made.parts(lap(optimizer=(1000, 0))) == {}  # of no network


def test_shapes_are_timed_twenty_times_in_all_over_several_iterations(policy, steady):
    made, one = Floor(policy.net), lap(forward=(40, 0))
    shape = Product("y", 40, 128, 64)
    for count in (4, 8, 12, 16, 20, 20):
        made.improve([one])
        assert steady[shape] == count
    made.improve([lap(forward=(41, 0))], 50)
    assert steady[shape._replace(rows=41)] == 20


def test_the_best_timing_counts(policy, steady, monkeypatch):
    made, one = Floor(policy.net), lap(forward=(40, 0))
    times = iter([5.0, 3.0, 4.0])
    for expected in (5.0, 3.0, 3.0):
        now = next(times)
        monkeypatch.setattr(floor, "timings", lambda *_, now=now: [9.0, now])
        made.improve([one])
        assert made.best[Product("y", 40, 128, 64)] == expected


def test_lengths_that_are_close_share_a_timing(policy, steady):
    made = Floor(policy.net)
    for rows in (1, 63, 64, 65, 1000, 1023, 2047, 5000):
        timed = made._timed(Product("y", rows, 64, 32)).rows
        assert timed == rows if rows < 64 else abs(timed - min(rows, 2048)) <= rows / 64
        one = lap(forward=(rows, 0))
        made.improve([one])
        seconds = rows * 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) / 1e9
        assert made.parts(one)["forward"] == pytest.approx(seconds)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_products_are_of_their_shapes(dtype, monkeypatch):
    cpu, seen = torch.device("cpu"), []
    mm = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b, out: seen.append((a, b)) or mm(a, b, out=out))
    for of in ("y", "dx", "dw"):
        times = floor.timings(Product(of, 5, 7, 11), 2, dtype, cpu)
        assert len(times) == (4 if of == "dw" else 2)
        assert all(t > 0 for t in times)
    shapes = [(tuple(a.shape), tuple(b.shape)) for a, b in seen[::2]]
    assert shapes == [((5, 7), (7, 11)), ((5, 11), (11, 7)), ((11, 5), (5, 7)), ((7, 5), (5, 11))]
    assert {x.dtype for pair in seen for x in pair} == {dtype}


def test_memory_is_read_at_a_plausible_rate():
    assert 1e8 < floor.bandwidth(2, torch.device("cpu")) < 1e13
