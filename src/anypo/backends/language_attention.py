"""Attention for many short sequences: rows of a packed run see only themselves."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "anypo"
SHORT = 512
"""Longest row whose scores are held whole on a CPU.

Below it two plain matrix products are two to four times faster than the fused kernel, whose
backward pass is slow in bfloat16; above it the `[heads, l, l]` scores would fill the memory.
"""


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    rows: list[Tensor] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """`softmax(q·kᵀ·scaling + mask)·v` by row, in the signature of transformers' interface.

    Shapes: query `[B, H, l, D]`, key `[B, K, s, D]`, value `[B, K, s, E]` with K a divisor of H;
    the result is `[B, l, H, E]`. With `rows`, B is 1 and `l = s = Σ` of the sizes of their masks.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if rows is None:
        out = _dense(query, key, value, attention_mask, scale)
    else:
        sizes = [len(mask) for mask in rows]
        parts = zip(*(x.split(sizes, dim=2) for x in (query, key, value)), rows, strict=True)
        out = torch.cat([_dense(q, k, v, mask, scale) for q, k, v, mask in parts], dim=2)
    return out.transpose(1, 2).contiguous(), None


def _dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    batch, heads, length, width = query.shape
    keys, seen = key.shape[1], key.shape[2]
    share = heads // keys
    if query.is_cuda or (length > 1 and seen > SHORT):
        key, value = (x.repeat_interleave(share, dim=1) for x in (key, value))
        if mask is not None:
            mask = mask.to(value.dtype)
        query, key = query.to(value.dtype), key.to(value.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    folded = (query * scale).reshape(batch, keys, share * length, width)
    scores = torch.matmul(folded, key.transpose(-1, -2))
    if mask is not None:
        by_head = scores.view(batch, keys, share, length, seen)
        lifted = mask if mask.dim() == 2 else mask[:, :, None]
        scores = (by_head + lifted.to(scores.dtype)).view(scores.shape)
    weights = torch.softmax(scores, dim=-1).to(value.dtype)
    return torch.matmul(weights, value).view(batch, heads, length, value.shape[-1])


def register() -> None:
    """Make `attn_implementation="anypo"` known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, eager_mask)
