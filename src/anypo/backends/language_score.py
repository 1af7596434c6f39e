"""Log-probability and entropy of tokens, in chunks: no `[steps, vocabulary]` tensor is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 128
"""States scored at once: their float32 logits (25 MB for 49 152 tokens) stay near the cores."""
SPAN = 4 * CHUNK
"""States whose logit gradients are kept for one product with the states, in the backward pass."""


@dataclass(frozen=True)
class Readout:
    """From hidden states to logits: `logits = softcap · tanh(scale · (x·Wᵀ + b) / softcap)`.

    Parameters
    ----------
    weight, bias : `[V, H]`, `[V]` or None, already in the dtype that multiplies.
    scale, softcap : what some architectures do to their logits; 1 and 0 (off) for most.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float = 0.0

    def __call__(self, hidden: Tensor) -> Tensor:
        """Logits `[n, V]` in float32 (float64 for a float64 model)."""
        raw = F.linear(hidden.to(self.weight.dtype), self.weight, self.bias)
        logits = raw.to(torch.promote_types(raw.dtype, torch.float32))
        logits = logits * self.scale if self.scale != 1 else logits
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap else logits

    def slope(self, logits: Tensor) -> Tensor | float:
        """∂logits / ∂(x·Wᵀ + b)."""
        return self.scale * (1 - (logits / self.softcap) ** 2) if self.softcap else self.scale


class _Score(torch.autograd.Function):
    """logp and entropy with their exact gradient; logits are computed again in the backward pass.

    With `p = softmax(logits / T)`: `∂logp_t/∂logits = (1_t − p) / T` and
    `∂entropy/∂logits = −p · (log p + entropy) / T`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        row: Tensor,
        token: Tensor,
        options: tuple[float, float, float],
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        readout = Readout(weight, bias, *options[:2])
        chosen, norm, entropy = [], [], []
        for start in range(0, len(hidden), CHUNK):
            logits = readout(hidden[start : start + CHUNK]).div_(options[2])
            norm.append(torch.logsumexp(logits, -1))
            mine = (row >= start) & (row < start + CHUNK)
            chosen.append(logits[row[mine] - start, token[mine]])
            logp = logits.sub_(norm[-1][:, None]) if with_entropy else logits[:, :0]
            entropy.append(-(logp.exp() * logp).sum(-1))
        norms, entropies = torch.cat(norm), torch.cat(entropy)
        ctx.save_for_backward(hidden, weight, bias, row, token, norms, entropies)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return torch.cat(chosen) - norms[row], entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, *_ = ctx.saved_tensors
        dtype = ctx.saved_tensors[5].dtype
        to_hidden = torch.empty_like(hidden)
        to_weight = None
        to_bias = None if bias is None else torch.zeros_like(bias, dtype=dtype)
        kept = weight.new_empty(min(SPAN, len(hidden)), len(weight))
        for start in range(0, len(hidden), SPAN):
            states = hidden[start : start + SPAN].to(weight.dtype)
            slopes = kept[: len(states)]
            for inner in range(0, len(states), CHUNK):
                grad = _slopes(ctx, grads, start + inner)
                slopes[inner : inner + CHUNK] = grad
                if to_bias is not None:
                    to_bias += grad.sum(0)
            to_hidden[start : start + SPAN] = slopes @ weight
            part = (slopes.t() @ states).to(dtype)
            to_weight = part if to_weight is None else to_weight.add_(part)
        return to_hidden, to_weight, to_bias, None, None, None, None


def _slopes(ctx: Any, grads: tuple[Tensor | None, ...], start: int) -> Tensor:
    """∂loss / ∂(x·Wᵀ + b) of one chunk of states."""
    hidden, weight, bias, row, token, norms, entropies = ctx.saved_tensors
    to_logp, to_entropy = grads
    scale, softcap, temperature = ctx.options
    part = slice(start, start + CHUNK)
    readout = Readout(weight, bias, scale, softcap)
    logits = readout(hidden[part])
    slope = readout.slope(logits) / temperature
    logp = logits.div(temperature).sub_(norms[part, None])
    pull = torch.zeros_like(norms[part, None])
    mine = (row >= start) & (row < start + CHUNK)
    if to_logp is not None:
        pull[:, 0].index_add_(0, row[mine] - start, to_logp[mine])
    if to_entropy is not None:
        pull = pull + to_entropy[part, None] * (logp + entropies[part, None])
    grad = logp.exp_().mul_(-pull)
    if to_logp is not None:
        place = (row[mine] - start) * grad.shape[1] + token[mine]
        # index_add_ adds repeated places in their order, so the sum is the same on every run
        grad.view(-1).index_add_(0, place, to_logp[mine])
    return grad.mul_(slope)


def score(
    readout: Readout,
    hidden: Tensor,
    row: Tensor,
    token: Tensor,
    temperature: float = 1.0,
    entropy: bool = True,
) -> tuple[Tensor, Tensor]:
    """`log softmax(logits / T)[token]` and the entropy of that distribution, each `[N]`.

    Parameters
    ----------
    readout : gives the logits of a hidden state.
    hidden : `[U, H]`, the distinct states that predict something.
    row, token : `[N]`: token `n` is predicted by state `row[n]`; rows ascend.
    temperature : T.
    entropy : whether it is wanted; without, the second tensor is 0.
    """
    options = (readout.scale, readout.softcap, temperature)
    logp, per_state = _Score.apply(
        hidden, readout.weight, readout.bias, row, token, options, entropy
    )
    return logp, per_state.index_select(0, row)


@torch.no_grad()
def likeliest(readout: Readout, hidden: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """Whether each token is the likeliest in its place, 1 or 0; `[N]`, arguments as in `score`."""
    best = [
        readout(hidden[start : start + CHUNK]).argmax(-1) for start in range(0, len(hidden), CHUNK)
    ]
    return (torch.cat(best)[row] == token).to(hidden.dtype)
