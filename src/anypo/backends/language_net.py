"""The network under a language policy: its decoder, its readout, and the precision of both."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anypo.backends import language_attention
from anypo.backends.language_pack import pack
from anypo.backends.language_score import Readout
from anypo.core.errors import UsageError, nearest

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}


def default_precision(device: torch.device) -> str:
    """`bfloat16` where the hardware multiplies it, else `float32`."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return "bfloat16" if probe and probe() else "float32"


class _Cast(torch.autograd.Function):
    """A low-precision copy in the forward pass; its gradient goes to the float32 master."""

    @staticmethod
    def forward(ctx: Any, master: Tensor, copy: Tensor) -> Tensor:
        ctx.dtype = master.dtype
        return copy.view_as(copy)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].to(ctx.dtype), None


class Copies:
    """bfloat16 copies of float32 masters, each made again when its master has changed."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Tensor, int, Tensor]] = {}

    def expire(self) -> None:
        """Make every copy again when it is next asked for."""
        self._held = {name: (m, -1, copy) for name, (m, _, copy) in self._held.items()}

    def of(self, name: str, master: Tensor) -> Tensor:
        """The copy of a master, attached to it where gradients are on."""
        held = self._held.get(name)
        if held is None or held[0] is not master or held[1] != master._version:
            # an old copy is overwritten: memory that is allocated anew has to be paged in
            copy = torch.empty_like(master, dtype=torch.bfloat16) if held is None else held[2]
            held = (master, master._version, copy.copy_(master.detach()))
            self._held[name] = held
        if master.requires_grad and torch.is_grad_enabled():
            return cast(Tensor, _Cast.apply(master, held[2]))
        return held[2]


class Net:
    """Hidden states and readout of a Hugging Face causal LM, in a chosen precision.

    Weights are float32 masters; with `bfloat16` the matrix products use copies of them under
    autocast, and residual stream, norms and softmaxes stay as autocast keeps them.

    Parameters
    ----------
    causal : a causal language model of transformers (adapters, if any, already in place).
    precision : `float32`, `bfloat16` or `float64` (the module's own dtype is then float64).

    Raises `UsageError` for an architecture whose logits are not a linear readout of its last
    hidden states, softcapped or scaled.
    """

    def __init__(self, causal: Any, precision: str) -> None:
        if precision not in PRECISIONS:
            raise UsageError(
                f"precision {precision!r} is none of {', '.join(PRECISIONS)}"
                f"{nearest(precision, PRECISIONS)}"
            )
        self.causal, self.precision = causal, precision
        self.decoder: Any = causal.get_decoder()
        self.config: Any = self.decoder.config
        accepted = inspect.signature(self.decoder.forward).parameters
        self._positions = "position_ids" in accepted
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._copies = Copies()
        self._linears = [
            f"{name}.weight" for name, m in self.decoder.named_modules() if isinstance(m, nn.Linear)
        ]
        self.packs = self._try_packing()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.decoder.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Of the matrix products."""
        return PRECISIONS[self.precision]

    @property
    def width(self) -> int:
        """Features of a hidden state."""
        return self.causal.get_output_embeddings().weight.shape[1]

    @property
    def context(self) -> int:
        """Most tokens that the model can read."""
        return int(getattr(self.config, "max_position_embeddings", 0) or 2**31)

    @property
    def reach(self) -> float:
        """Query-key pairs of attention that cost as much as one token in the dense layers.

        `weights of a layer / (2 · width of its queries)`: a token takes two operations for each
        weight, a pair four for each feature of a query.
        """
        inner = sum(p.numel() for p in self.decoder.parameters() if p.dim() == 2)
        inner -= self.decoder.get_input_embeddings().weight.numel()
        return max(inner / (2 * self.config.num_hidden_layers * self.config.hidden_size), 1.0)

    # ── precision ───────────────────────────────────────────────────────────────────────────────

    def expire(self) -> None:
        """Make low-precision copies again before their next use."""
        self._copies.expire()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Keep the copies of the current weights while others are computed with."""
        kept, self._copies = self._copies, Copies()
        try:
            yield
        finally:
            self._copies = kept

    def _run(self, **inputs: Any) -> Any:
        inputs = {k: v for k, v in inputs.items() if v is not None}
        if self.precision != "bfloat16":
            return self.decoder(**inputs)
        own = dict(self.decoder.named_parameters(remove_duplicate=False))
        copies = {name: self._copies.of(name, own[name]) for name in self._linears}
        with torch.autocast(self.device.type, torch.bfloat16):
            return functional_call(self.decoder, copies, (), inputs, strict=False)

    def readout(self) -> Readout:
        """From hidden states to logits."""
        layer, config = self.causal.get_output_embeddings(), self.config
        weight, bias = layer.weight, getattr(layer, "bias", None)
        if self.precision == "bfloat16":
            weight = self._copies.of("readout", weight)
            bias = None if bias is None else bias.to(torch.bfloat16)
        scale = getattr(config, "logit_scale", None) or 1 / getattr(config, "logits_scaling", 1.0)
        return Readout(
            weight, bias, float(scale), float(getattr(config, "final_logit_softcapping", 0) or 0)
        )

    # ── forward passes ──────────────────────────────────────────────────────────────────────────

    def hidden(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, list[Tensor]]:
        """Last hidden states `[T, H]`, and for each sequence the rows of its tokens in order."""
        if not self.packs:
            return self._padded(sequences)
        packed = pack(sequences, self.reach, self.dtype)
        out = self._run(
            input_ids=packed.tokens[None].to(self.device),
            position_ids=packed.positions[None].to(self.device),
            # a mask of four dimensions is taken as it is: none is built beside those of the rows
            attention_mask=torch.zeros(1, 1, 1, 1, device=self.device, dtype=self.dtype),
            rows=[mask.to(self.device) for mask in packed.rows],
            use_cache=False,
        )
        return out.last_hidden_state[0], packed.slots

    def _padded(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, list[Tensor]]:
        """One row per sequence, padded on the right, where a causal model cannot look."""
        longest = max(map(len, sequences))
        tokens = torch.zeros(len(sequences), longest, dtype=torch.long)
        seen = torch.zeros(len(sequences), longest, dtype=torch.long)
        for k, sequence in enumerate(sequences):
            tokens[k, : len(sequence)] = torch.as_tensor(sequence)
            seen[k, : len(sequence)] = 1
        positions = torch.arange(longest, device=self.device).expand(len(sequences), -1)
        out = self._run(
            input_ids=tokens.to(self.device),
            attention_mask=seen.to(self.device),
            position_ids=positions if self._positions else None,
            use_cache=False,
        )
        slots = [torch.arange(len(s)) + k * longest for k, s in enumerate(sequences)]
        return out.last_hidden_state.flatten(0, 1), slots

    def extend(self, tokens: Tensor, positions: Tensor, seen: Tensor, cache: Any) -> Tensor:
        """Last hidden states `[B, l, H]` of new tokens after those in the cache, which grows.

        Parameters
        ----------
        tokens, positions : `[B, l]`; a position counts the tokens before it, padding left out.
        seen : bool `[B, s]`, which of all tokens so far, the new ones included, are no padding.
        cache : of transformers, with room for B rows.
        """
        mask = _visible(seen, tokens.shape[1], self.dtype) if self.packs else seen.long()
        out = self._run(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions if self._positions else None,
            use_cache=True,
            **{self._cache_name: cache},
        )
        return out.last_hidden_state

    # ── what kind of model is it? ───────────────────────────────────────────────────────────────

    @torch.no_grad()
    def _try_packing(self) -> bool:
        """Whether packed rows give this architecture's own hidden states; else it gets padding."""
        size = self.config.vocab_size
        sequences = [[t % size for t in s] for s in ([1, 2, 3, 4], [1, 2, 5], [1, 2, 5, 6], [7, 8])]
        self.causal.eval()
        precision, self.precision = self.precision, str(self._master_dtype()).split(".")[-1]
        self.packs = False
        plain = torch.cat([self._own(s) for s in sequences])
        hidden, slots = self._padded(sequences)
        if not _close(self.readout()(hidden[torch.cat(slots)]), plain):
            raise UsageError(
                f"{type(self.causal).__name__} computes its logits in a way that anypo does not "
                "know: choose a policy of another architecture"
            )
        self.packs = self._attends_fully() and self._packed_agrees(sequences, plain)
        self.precision = precision
        return self.packs

    def _master_dtype(self) -> torch.dtype:
        return next(self.decoder.parameters()).dtype

    def _own(self, sequence: list[int]) -> Tensor:
        tokens = torch.tensor([sequence], device=self.device)
        return self.causal(input_ids=tokens, use_cache=False).logits[0].to(self._master_dtype())

    def _attends_fully(self) -> bool:
        """No layer with a window or a state: what a mask of rows does not describe."""
        kinds = set(getattr(self.config, "layer_types", None) or ["full_attention"])
        window = getattr(self.config, "sliding_window", None)
        return kinds == {"full_attention"} and not window and self._positions

    def _packed_agrees(self, sequences: list[list[int]], plain: Tensor) -> bool:
        before = self.causal.config._attn_implementation
        if not self.causal._can_set_attn_implementation():
            return False
        language_attention.register()
        self.causal.set_attn_implementation(language_attention.NAME)
        self.packs = True
        hidden, slots = self.hidden(sequences)
        agrees = _close(self.readout()(hidden[torch.cat(slots)]), plain)
        if not agrees:
            self.causal.set_attn_implementation(before)
        return agrees


def _close(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x, y.to(x.dtype), rtol=1e-3, atol=1e-3 * float(y.abs().max()))


def _visible(seen: Tensor, new: int, dtype: torch.dtype) -> Tensor:
    """Additive mask `[B, 1, new, s]`: a token sees the unpadded past and always itself.

    Padding sees itself too: a row of a softmax without any entry would be NaN, and a NaN in a key
    or value spreads even where its weight is 0.
    """
    size = seen.shape[1]
    places = torch.arange(size, device=seen.device)
    own = places[size - new :, None]
    allowed = (seen[:, None, :] & (places <= own)) | (places == own)
    out = torch.zeros(allowed.shape, dtype=dtype, device=seen.device)
    return out.masked_fill(~allowed, -torch.inf)[:, None]
