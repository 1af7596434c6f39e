"""Sampling: each prompt is read once for its group, and each sample has its own random stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from anypo.backends.language_net import Net
from anypo.backends.language_score import CHUNK

MEMORY = 2**31
"""Bytes of keys and values held at once; more samples are drawn in turns."""


@dataclass
class Sample:
    """Tokens drawn after one prompt, and the log-probabilities that they were drawn with."""

    prompt: Sequence[int]
    key: int
    most: int
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    finished: bool = False

    @property
    def live(self) -> bool:
        """Whether another token is to be drawn."""
        return not self.finished and len(self.tokens) < self.most

    @property
    def spoken(self) -> list[int]:
        """The tokens without the end token."""
        return self.tokens[: len(self.tokens) - self.finished]

    def take(self, token: int, logp: float, ends: frozenset[int]) -> None:
        """Append a token; an end token is kept and finishes the sample."""
        self.tokens.append(token)
        self.logp.append(logp)
        self.finished = token in ends


@torch.no_grad()
def sample(net: Net, samples: Sequence[Sample], ends: frozenset[int], temperature: float) -> None:
    """Fill samples with tokens: `token ~ softmax(logits / T)`, greedily for T = 0.

    The t-th token of a sample is the inverse of its cumulative distribution at the t-th uniform
    number of the stream that the sample's key names, so a sample depends on no other, and nothing
    but the rounding of its logits on how many are drawn together. No top-p or top-k, whatever a
    generation config says. `logp` is that of the sampled distribution (0 for T = 0).
    """
    order = sorted(samples, key=lambda s: (len(s.prompt), s.prompt))
    for turn in _turns(net, order):
        _sample_together(net, turn, ends, temperature)


def _turns(net: Net, samples: list[Sample]) -> list[list[Sample]]:
    """Cut samples so that the keys and values of each turn fit into `MEMORY`."""
    config = net.config
    queries = getattr(config, "num_attention_heads", None) or 1
    heads = getattr(config, "num_key_value_heads", None) or queries
    width = getattr(config, "head_dim", None) or config.hidden_size // queries
    per_token = 2 * config.num_hidden_layers * heads * width * net.dtype.itemsize
    turns: list[list[Sample]] = []
    used = 0
    for s in samples:
        size = per_token * (len(s.prompt) + s.most)
        if not turns or used + size > MEMORY:
            turns.append([])
            used = 0
        turns[-1].append(s)
        used += size
    return turns


def _sample_together(
    net: Net, samples: list[Sample], ends: frozenset[int], temperature: float
) -> None:
    prompts = sorted({tuple(s.prompt) for s in samples})
    horizon = max(s.most for s in samples)
    streams = [torch.Generator().manual_seed(s.key) for s in samples]
    uniform = torch.stack([torch.rand(horizon, generator=g, dtype=torch.float64) for g in streams])
    cache: Any = DynamicCache(config=net.config)
    hidden, seen, lengths = net.read(prompts, cache)
    alive, size = list(range(len(samples))), net.config.vocab_size
    # samples with the same prompt that agree so far are one row of the cache
    row = torch.tensor([prompts.index(tuple(s.prompt)) for s in samples], device=net.device)
    for place in range(horizon):
        token, logp = _draw(net, hidden, row, uniform[alive, place], temperature)
        for k, t, value in zip(alive, token.tolist(), logp.tolist(), strict=True):
            samples[k].take(t, value, ends)
        keep = [n for n, k in enumerate(alive) if samples[k].live]
        if not keep:
            return
        alive = [alive[n] for n in keep]
        step, row = torch.unique(row[keep] * size + token[keep], return_inverse=True)
        parent, token = step // size, step % size
        if not torch.equal(parent, torch.arange(len(seen), device=net.device)):
            cache.reorder_cache(parent)
            seen, lengths = seen[parent], lengths[parent]
        seen = torch.cat([seen, torch.ones_like(seen[:, :1])], dim=1)
        hidden = net.extend(token[:, None], lengths[:, None] + place, seen, cache)[:, -1]


def _draw(
    net: Net, hidden: Tensor, row: Tensor, uniform: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """A token for each sample from the distribution of its row of `hidden`."""
    readout = net.readout()
    token = torch.zeros(len(row), dtype=torch.long, device=row.device)
    logp = torch.zeros(len(row), device=row.device)
    for start in range(0, len(hidden), CHUNK):
        mine = ((row >= start) & (row < start + CHUNK)).nonzero()[:, 0]
        logits = readout(hidden[start : start + CHUNK])
        drawn = invert(logits, row[mine] - start, uniform[mine.cpu()], temperature)
        token[mine], logp[mine] = drawn
    return token, logp


def invert(
    logits: Tensor, row: Tensor, uniform: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """The token at which the cumulative distribution passes `uniform`, and its log-probability.

    Shapes: logits `[R, V]`, row and uniform `[n]` (in [0, 1)), results `[n]`. T = 0 gives the
    largest logit and the log-probability 0.
    """
    if temperature == 0:
        return logits.argmax(-1)[row], torch.zeros(len(row), device=row.device)
    logp = torch.log_softmax(logits / temperature, dim=-1)
    climb = logp.exp().cumsum(-1)[row]
    top = climb[:, -1:]
    # an ulp below the top: rounding must not lead past the last token that has a chance
    mark = torch.minimum(uniform.to(climb)[:, None] * top, top.nextafter(torch.zeros_like(top)))
    token = torch.searchsorted(climb, mark, right=True)[:, 0]
    return token, logp[row, token].float()
