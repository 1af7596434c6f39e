"""The network under a language policy: its decoder, its readout, and the precision of both."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from transformers import DynamicCache

from anypo.backends import language_attention
from anypo.backends.language_pack import pack, shared_prefix
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


class Exact(TorchFunctionMode):
    """float64 stays float64: architectures round norms and softmaxes to float32 by themselves."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Leave out conversions of float64 tensors to float32."""
        kwargs = kwargs or {}
        wide = bool(args) and isinstance(args[0], Tensor) and args[0].dtype == torch.float64
        narrow = torch.float32 in (*args[1:], *kwargs.values())
        if wide and (func is Tensor.float or (func is Tensor.to and narrow)):
            return args[0]
        if wide and kwargs.get("dtype") is torch.float32:
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)


class Copies:
    """bfloat16 copies of float32 masters, each kept until it expires.

    A change of a master is not noticed: a fused optimizer step leaves no trace in its version.
    """

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def expire(self) -> None:
        """Make every copy again when it is next asked for."""
        self._held.clear()

    def of(self, name: str, master: Tensor) -> Tensor:
        """The copy of a master, attached to it where gradients are on."""
        if name not in self._held:
            # never overwritten: a graph whose backward pass is still to come may hold the old one
            self._held[name] = master.detach().to(torch.bfloat16)
        if master.requires_grad and torch.is_grad_enabled():
            return cast(Tensor, _Cast.apply(master, self._held[name]))
        return self._held[name]


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
        names = ("cache", "past_key_values", "cache_params")
        self._cache_name = next((name for name in names if name in accepted), "")
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
        if self.precision == "float64":
            with Exact():
                return self.decoder(**inputs)
        if self.precision == "float32":
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

    def read(self, prompts: Sequence[Sequence[int]], cache: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Read prompts into an empty cache, one row each.

        What all prompts begin with, such as a system message, is read once. The rest is padded on
        the left; positions count real tokens only.

        Returns the hidden state `[P, H]` after each prompt, which slots of the cache are no padding
        (bool `[P, s]`), and the prompts' lengths `[P]`.
        """
        common = 0
        if self.packs and len(prompts) > 1:
            ordered = sorted(map(list, prompts))
            common = min(shared_prefix(ordered[0], ordered[-1]), min(map(len, prompts)) - 1)
        if common:
            prefix = torch.tensor([prompts[0][:common]], device=self.device)
            places = torch.arange(common, device=self.device)[None]
            self.extend(prefix, places, torch.ones_like(prefix, dtype=torch.bool), cache)
            cache.reorder_cache(torch.zeros(len(prompts), dtype=torch.long, device=self.device))
        longest = max(map(len, prompts)) - common
        tokens = torch.zeros(len(prompts), longest, dtype=torch.long)
        seen = torch.zeros(len(prompts), longest, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            rest = torch.tensor(prompt[common:])
            tokens[row, longest - len(rest) :] = rest
            seen[row, longest - len(rest) :] = True
        positions = (seen.long().cumsum(1) - 1 + common).clamp(min=0)
        seen = torch.cat([torch.ones(len(prompts), common, dtype=torch.bool), seen], dim=1)
        seen = seen.to(self.device)
        hidden = self.extend(tokens.to(self.device), positions.to(self.device), seen, cache)
        return hidden[:, -1], seen, seen.sum(1)

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
        if not self._continues([[1, 2, 3, 4], [7, 8]]):
            raise UsageError(
                f"{type(self.causal).__name__} keeps its past in a way that anypo does not know: "
                "choose a policy of another architecture"
            )
        self.precision = precision
        return self.packs

    def _continues(self, sequences: list[list[int]]) -> bool:
        """Whether the last token, read after the cached others, gives the architecture's logits."""
        size = self.config.vocab_size
        sequences = [[t % size for t in s] for s in sequences]
        if not self._cache_name:
            return False
        cache = DynamicCache(config=self.config)
        _, seen, lengths = self.read([s[:-1] for s in sequences], cache)
        last = torch.tensor([s[-1:] for s in sequences], device=self.device)
        seen = torch.cat([seen, torch.ones_like(seen[:, :1])], dim=1)
        hidden = self.extend(last, lengths[:, None], seen, cache)[:, -1]
        return _close(self.readout()(hidden), torch.stack([self._own(s)[-1] for s in sequences]))

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
