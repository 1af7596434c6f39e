"""The floor of an iteration: the time of the arithmetic that a language model cannot avoid.

It is the sum over the model's own matrix products, each with its shape, as often as it is made, at
the best of 20 timings on this machine; of the bytes that decoding must read; and of the bytes that
the optimizer must move. Left out are attention, norms, activations, softmaxes, sampling, rewards,
and logits that are computed a second time: an iteration as fast as its floor does not exist.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anypo.core.clock import Lap, Pass

MOST = 20
"""Timings of a shape, of which the best counts."""
AT_ONCE = 4
"""Timings of a shape after one iteration, so that they spread over several."""
DIGITS = 6
"""Binary digits of a number of rows that count: up to 63 each has timings of its own."""
LARGEST = 2048
"""Rows that are timed at most: more cost in proportion."""
BYTES_OF_ADAM = 7 * 4
"""Of each weight, gradient and two moments are read, and the weight and the moments written."""
STREAM = 2**28
"""Bytes of the memory that is read to measure bandwidth: more than caches hold."""
FORWARD = ("prefill", "decode", "forward")


class Product(NamedTuple):
    """A matrix product of a linear layer from `inputs` to `outputs` features on `rows` tokens.

    `of` is `y = x·Wᵀ`, `dx = g·W` or `dw = gᵀ·x`, whose operations are equally many.
    """

    of: str
    rows: int
    inputs: int
    outputs: int


class Layer(NamedTuple):
    """A linear layer, and the products that it must make in a forward and in a backward pass."""

    inputs: int
    outputs: int
    forward: tuple[str, ...]
    backward: tuple[str, ...]


def layer(inputs: int, outputs: int, trained: bool, name: str = "") -> Layer:
    """How a layer counts, by its name.

    The gradient of its input is always counted, also below the first trained layer of a model. A
    low-rank adapter need not multiply in the forward pass, since its product can be added to the
    weights; backwards the gradients of its factors A and B take `g·B`, `x·Aᵀ` and one product each.
    """
    if "lora_A" in name:
        return Layer(inputs, outputs, (), ("y", "dw"))
    if "lora_B" in name:
        return Layer(inputs, outputs, (), ("dx", "dw"))
    return Layer(inputs, outputs, ("y",), ("dx", "dw") if trained else ("dx",))


def layers_of(decoder: nn.Module) -> Counter[Layer] | None:
    """The linear layers of a decoder, alike ones counted together.

    None where weights are multiplied in other ways, as those of experts are.
    """
    found: Counter[Layer] = Counter()
    for name, module in decoder.named_modules():
        if any(p.dim() > 2 for p in module.parameters(recurse=False)):
            return None
        if isinstance(module, nn.Linear):
            trained = module.weight.requires_grad
            found[layer(module.in_features, module.out_features, trained, name)] += 1
        elif hasattr(module, "nf"):  # Conv1D of GPT-2: a linear layer whose weight is turned
            weight: Any = module.weight
            found[layer(weight.shape[0], weight.shape[1], weight.requires_grad, name)] += 1
    return found or None


def products(layers: Counter[Layer], readout: Layer, one: Pass) -> Counter[Product]:
    """The matrix products of a pass: layers on all tokens, the readout where it is scored."""
    found: Counter[Product] = Counter()
    for (inputs, outputs, forward, backward), count in layers.items():
        for of in _made(one, forward, backward):
            found[Product(of, one.tokens, inputs, outputs)] += count
    for of in _made(one, readout.forward, readout.backward):
        found[Product(of, one.scored, readout.inputs, readout.outputs)] += 1
    return Counter({p: n for p, n in found.items() if p.rows})


def _made(one: Pass, forward: tuple[str, ...], backward: tuple[str, ...]) -> tuple[str, ...]:
    return forward if one.kind in FORWARD else backward if one.kind == "backward" else ()


class Floor:
    """Collects the best timings over a run, and says what the work of an iteration must take.

    Parameters
    ----------
    net : of a language policy: its `decoder`, `config`, `dtype`, `device`, and readout.

    Passes are those that the network says it makes, so a prompt that it encodes once for a group
    counts once; work that it need not have made is not found out.
    """

    def __init__(self, net: Any) -> None:
        self.layers = layers_of(net.decoder)
        head = net.causal.get_output_embeddings().weight
        self.readout = layer(head.shape[1], head.shape[0], head.requires_grad)
        self.dtype, self.device = net.dtype, net.device
        self.cached = cached_values(net.config)
        self.best: dict[Product, float] = {}
        self.timings: Counter[Product] = Counter()
        self.bandwidth = 0.0
        self._streamed = 0

    @torch.no_grad()
    def improve(self, laps: Iterable[Lap], most: int = AT_ONCE) -> None:
        """Time the shapes of these iterations up to `most` times more, each at most 20 in all."""
        if not self.layers:
            return
        shapes = {self._timed(p) for lap in laps for p in self._products(lap)}
        for shape in sorted(shapes):
            if wanted := min(most, MOST - self.timings[shape]):
                found = min(timings(shape, wanted, self.dtype, self.device))
                self.best[shape] = min(found, self.best.get(shape, found))
                self.timings[shape] += wanted
        if wanted := min(most, MOST - self._streamed):
            self.bandwidth = max(self.bandwidth, bandwidth(wanted, self.device))
            self._streamed += wanted

    def parts(self, lap: Lap) -> dict[str, float]:
        """Seconds of the iteration's unavoidable arithmetic; empty where it is not known.

        `prefill`, `decode`, `forward` and `backward` are their matrix products; `reading` is the
        bytes of weights (once for each decoding step) and of cached keys and values over the
        bandwidth, `optimizer` those of AdamW.
        """
        if not self.layers or not self._products(lap):
            return {}
        out: dict[str, float] = dict.fromkeys((*FORWARD, "backward"), 0.0)
        steps = stepped = 0
        for one, count in lap.passes.items():
            if one.kind == "optimizer":
                stepped += one.tokens * count
                continue
            steps += count * (one.kind == "decode")
            made = products(self.layers, self.readout, one)
            out[one.kind] += count * sum(n * self._seconds(p) for p, n in made.items())
        size = self.dtype.itemsize
        read = steps * self.weights * size + lap.cached * self.cached * size
        out |= {"reading": read / self.bandwidth}
        out |= {"optimizer": stepped * BYTES_OF_ADAM / self.bandwidth}
        return {name: x for name, x in out.items() if x}

    @property
    def weights(self) -> int:
        """Weights that a decoding step multiplies; an adapter's are in the layers' own."""
        inner = sum(n * x.inputs * x.outputs for x, n in (self.layers or {}).items() if x.forward)
        return inner + self.readout.inputs * self.readout.outputs

    def _products(self, lap: Lap) -> set[Product]:
        made = (products(self.layers or Counter(), self.readout, one) for one in lap.passes)
        return {p for found in made for p in found}

    def _seconds(self, product: Product) -> float:
        shape = self._timed(product)
        return self.best[shape] * product.rows / shape.rows

    @staticmethod
    def _timed(product: Product) -> Product:
        """The shape that stands for a product: lengths differ, but those near have one timing."""
        rows = min(product.rows, LARGEST)
        step = 2 ** max(rows.bit_length() - DIGITS, 0)
        return product._replace(rows=round(rows / step) * step)


def cached_values(config: Any) -> int:
    """Numbers that a cache keeps of one token: a key and a value for each key head and layer."""
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = getattr(config, "num_key_value_heads", None) or heads
    return 2 * config.num_hidden_layers * keys * width


def timings(shape: Product, count: int, dtype: torch.dtype, device: torch.device) -> list[float]:
    """Seconds of `count` products of a shape, into memory that is there already.

    `dw` is made in either order, `gᵀ·x` and `(xᵀ·g)ᵀ`, since one is often faster.
    """
    x = noise((shape.rows, shape.inputs), dtype, device)
    g = noise((shape.rows, shape.outputs), dtype, device)
    w = noise((shape.outputs, shape.inputs), dtype, device)
    ways = {"y": [(x, w.t())], "dx": [(g, w)], "dw": [(g.t(), x), (x.t(), g)]}
    found = []
    for a, b in ways[shape.of]:
        out = a @ b
        found += [clocked(partial(torch.mm, a, b, out=out), device) for _ in range(count)]
    return found


def noise(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Random numbers, few of which are drawn: how they repeat changes no time."""
    rng = torch.Generator().manual_seed(0)
    some = torch.randn(4099, generator=rng).to(device, dtype)
    size = shape[0] * shape[1]
    return some.repeat(-(-size // len(some)))[:size].view(shape)


def bandwidth(count: int, device: torch.device) -> float:
    """Bytes per second of memory, reading or copying, whichever is faster, best of `count`."""
    whole = torch.ones(STREAM // 4, device=device)
    half = len(whole) // 2
    ways = whole.sum, partial(whole[:half].copy_, whole[half:])
    return STREAM / min(clocked(way, device) for _ in range(count) for way in ways)


def clocked(run: Callable[[], object], device: torch.device) -> float:
    """Seconds that a function takes, its work on the device included."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    started = time.perf_counter()
    run()
    wait()
    return time.perf_counter() - started
