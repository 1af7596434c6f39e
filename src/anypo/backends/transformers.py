"""Language policies: any causal LM of Hugging Face, all weights or a LoRA adapter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anypo.backends import language_encode
from anypo.backends import language_files as files
from anypo.backends.language_net import Net, default_precision
from anypo.backends.language_sample import Sample, sample
from anypo.backends.language_score import likeliest, score
from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.rng import key
from anypo.policies.policy import Completion, Transcript, evaluated
from anypo.policies.swap import snapshot, swapped

Prompt = str | list[dict[str, str]]
Words = str | Sequence[Mapping[str, Any]]

LR, LR_LORA = 1e-5, 1e-4
LONGEST = 256
"""Tokens of an answer where nothing says how long it may be."""


class HFPolicy:
    """A language model whose steps are tokens: `π(token | prompt, tokens before)`.

    Weights are float32 masters; with `bfloat16` their copies multiply, under autocast, when
    sampling as when training. The sampled and the scored distribution are one:
    `softmax(logits / T)`, without top-p or top-k whatever the generation config says, and without
    dropout.

    Parameters
    ----------
    causal, tokenizer : of transformers.
    name : what the run's record calls it.
    lora : rank of an adapter on all linear layers (alpha = 2 · rank, no dropout, as the authors of
        LoRA did for GPT-2 and as peft's examples do); 0 trains all weights.
    precision : `bfloat16`, `float32`, `float64`; empty for the first where the hardware multiplies
        it, else the second.
    lr : learning rate for AdamW; 0 for 1e-5, measured on arithmetic with SmolLM2-135M (at 2e-5
        the policy settles on a few answers before it has found the others), and with
        LoRA 1e-4, ten times as much, the common rule.
    seed : of the adapter's initial weights.

    Raises `UsageError` for an unknown precision, and for an architecture with an odd readout.

    Prompts: a string is one user message where the tokenizer has a chat template, else it is
    taken as it is; a list of messages goes through the template, else its contents are joined by
    line breaks. A sample ends at any end token of the generation config.
    """

    kind = "language"
    offers = frozenset({"logp", "entropy", "top", "value", "value_next"})

    def __init__(
        self,
        causal: Any,
        tokenizer: Any,
        *,
        name: str,
        lora: int = 0,
        precision: str = "",
        lr: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.name, self.lora, self.seed, self.temperature = name, lora, seed, 1.0
        self.tokenizer = tokenizer
        self.lr = lr or (LR_LORA if lora else LR)
        device = next(causal.parameters()).device
        precision = precision or default_precision(device)
        causal.to(torch.float64 if precision == "float64" else torch.float32)
        self.module: nn.Module = _with_adapter(causal, name, lora, seed) if lora else causal
        self.module.eval()
        self.net = Net(causal, precision)
        self.ends = _end_ids(causal, tokenizer)

    # ── text ────────────────────────────────────────────────────────────────────────────────────

    @property
    def warm(self) -> bool:
        """Whether an adapter says something already: then switched off it is another policy."""
        named = self.module.named_parameters() if self.lora else ()
        return any(bool(p.detach().any()) for name, p in named if "lora_B" in name)

    @property
    def context(self) -> int:
        """Most tokens of an input."""
        return self.net.context

    def prompt_ids(self, prompt: Prompt) -> Tensor:
        """Token ids of a prompt, with the header of the answer where there is a chat template."""
        ids = language_encode.asked(self.tokenizer, self.ends, prompt)
        return torch.tensor(ids, dtype=torch.long)

    def encode(
        self, prompt: Words | None, answer: Words, tools: Sequence[Mapping[str, Any]] = ()
    ) -> Transcript:
        """A given answer as tokens, see `language_encode.encode`."""
        return language_encode.encode(self.tokenizer, self.ends, prompt, answer, tools)

    def decode(self, ids: Tensor) -> str:
        """Text of token ids, special tokens left out."""
        return self.tokenizer.decode(ids.tolist(), skip_special_tokens=True)

    # ── sampling ────────────────────────────────────────────────────────────────────────────────

    def generate(
        self,
        prompts: Sequence[Prompt],
        samples: int = 1,
        horizon: int = LONGEST,
        *,
        keys: Sequence[int] = (),
        temperature: float = 1.0,
        seed: int = 0,
    ) -> list[Completion]:
        """Draw `samples` completions of at most `horizon` tokens for each prompt, prompt-major.

        Parameters
        ----------
        prompts : texts or chats.
        keys : one seed per completion; a completion depends on its own alone.
        temperature : of the sampled distribution; 0 is greedy, and then logp is 0.
        seed : makes the keys where none are given.

        A completion also ends, unfinished, where the model's context is full.
        Raises `UsageError` for a prompt that leaves no room for an answer.
        """
        names = [(p, g) for p in range(len(prompts)) for g in range(samples)]
        keys = keys or [key(seed, "generate", *name) for name in names]
        if len(keys) != len(prompts) * samples:
            raise ValueError(f"{len(keys)} keys for {len(prompts)} prompts of {samples} samples")
        self.module.eval()
        ids = [self.prompt_ids(prompt) for prompt in prompts]
        drawn: list[Sample] = []
        for number, stream in enumerate(keys):
            prompt = ids[number // samples]
            drawn.append(Sample(prompt.tolist(), stream, min(horizon, self._room(prompt))))
        sample(self.net, drawn, self.ends, temperature)
        return [
            Completion(
                prompt=number // samples,
                prompt_ids=ids[number // samples],
                token_ids=torch.tensor(one.tokens, dtype=torch.long),
                logp=torch.tensor(one.logp, dtype=torch.float32),
                finished=one.finished,
                text=self.tokenizer.decode(one.spoken, skip_special_tokens=True),
                prompt_text=language_encode.said(prompts[number // samples]),
            )
            for number, one in enumerate(drawn)
        ]

    def generate_text(
        self,
        prompts: Prompt | Sequence[Prompt],
        n: int = 1,
        *,
        temperature: float = 1.0,
        max_tokens: int = LONGEST,
        seed: int = 0,
    ) -> list[list[str]]:
        """`n` answers to each prompt, as text; one prompt alone gives a list of one list.

        Parameters
        ----------
        prompts : texts, or chats (lists of `{"role": …, "content": …}`).
        temperature : of the sampled distribution; 0 is greedy.
        max_tokens : most tokens of an answer.
        seed : the same one gives the same answers.
        """
        for name, value, least in (("n", n, 1), ("max_tokens", max_tokens, 1)):
            if value < least:
                raise UsageError(f"{name} must be at least {least}, not {value}")
        if temperature < 0:
            raise UsageError(f"temperature must be at least 0, not {temperature}")
        alone = isinstance(prompts, str) or (bool(prompts) and isinstance(prompts[0], dict))
        several: Any = [prompts] if alone else list(prompts)
        drawn = self.generate(several, n, max_tokens, temperature=temperature, seed=seed)
        return [[c.text for c in drawn[i * n : (i + 1) * n]] for i in range(len(several))]

    def _room(self, prompt: Tensor) -> int:
        room = self.net.context - len(prompt)
        if room < 1:
            raise UsageError(
                f"a prompt has {len(prompt)} tokens ({self.decode(prompt)[:40]!r}…), and the "
                f"context of {self.name} is {self.net.context}: shorten it, or leave such rows out"
            )
        return room

    # ── scoring ─────────────────────────────────────────────────────────────────────────────────

    def head(self, outputs: int) -> nn.Module:
        """A linear head on the last hidden state, with zero weights: it begins at 0 everywhere."""
        head = nn.Linear(self.net.width, outputs)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head.to(next(self.module.parameters()))

    def columns(
        self, batch: Batch, needs: frozenset[str], heads: Mapping[str, nn.Module]
    ) -> dict[str, Tensor]:
        """`logp`, `entropy`, `value_next` and every owned head's column, each `[N]`, with gradient.

        `top` is 1 where the step's token is the likeliest of all, else 0, without gradient.

        `logp[n] = log softmax(logits / T)[tokens[p]]` from the hidden state at `p − 1`, where p is
        the step's id `position` in its `seq`; `value[n]` is the value head on the same state (and
        likewise every head gives the column of its name), `value_next[n]` that of the next step of
        the trajectory, 0 after the last.

        Tokens that several sequences begin with, such as the prompt of a group, are encoded once.
        Equal to encoding each sequence alone, to rounding.
        """
        if not len(batch):
            return {name: torch.zeros(0) for name in needs}
        self.module.eval()
        self.net.expire()  # there may have been an optimizer step since the last call
        sequence, place = batch.ids["seq"], batch.ids["position"]
        hidden, slots = self.net.hidden(_read_parts(batch))
        offsets = torch.tensor([0, *(len(s) for s in slots)]).cumsum(0)
        slot = torch.cat(slots)[offsets[sequence.cpu()] + place.cpu() - 1]
        states, row = torch.unique(slot, return_inverse=True)
        # index_select: the backward pass of x[index] adds in no fixed order
        features = hidden.index_select(0, states.to(hidden.device))
        out: dict[str, Tensor] = {}
        if needs & {"logp", "entropy", "top"}:
            out |= self._distribution(batch, features, row, needs)
        for name in evaluated(needs, heads):
            head = heads[name]
            values = head(features.to(next(head.parameters()).dtype))[:, 0]
            out[name] = values.index_select(0, row.to(values.device)).to(sequence.device)
        if "value_next" in needs:
            out["value_next"] = batch.next(out["value"], within="traj")
        return {name: out[name] for name in needs}

    def _distribution(
        self, batch: Batch, features: Tensor, row: Tensor, needs: frozenset[str]
    ) -> dict[str, Tensor]:
        sequences = batch.inputs["tokens"]
        places = zip(batch.ids["seq"].tolist(), batch.ids["position"].tolist(), strict=True)
        token = torch.tensor([int(sequences[s][p]) for s, p in places])
        by_state = torch.argsort(row, stable=True)
        where = row[by_state].to(features.device), token[by_state].to(features.device)
        readout = self.net.readout()
        entropy = "entropy" in needs
        logp, entropies = score(readout, features, *where, self.temperature, entropy)
        found = {"logp": logp, "entropy": entropies}
        if "top" in needs:
            found["top"] = likeliest(readout, features, *where)
        back = torch.argsort(by_state).to(features.device)
        device = batch.ids["seq"].device
        return {name: x.index_select(0, back).to(device) for name, x in found.items()}

    def costs(self, batch: Batch) -> list[int]:
        """Tokens of each `seq` that a forward pass reads: its answer, and its share of the prompt.

        The share is `prompt / sequences of this batch with the same prompt`, rounded up.
        """
        sequences, lengths = batch.inputs["tokens"], batch.inputs["prompt_length"]
        prompts = [
            tuple(tokens[:length].tolist())
            for tokens, length in zip(sequences, lengths, strict=True)
        ]
        sharers = Counter(prompts)
        return [
            len(tokens) - length - (-length // sharers[prompt])
            for tokens, length, prompt in zip(sequences, lengths, prompts, strict=True)
        ]

    # ── weights ─────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> dict[str, Tensor]:
        """A detached copy of every trainable parameter, by name."""
        return snapshot(self.module)

    @contextmanager
    def using(self, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
        """Compute under these weights inside the block; None switches the adapter off.

        Raises `UsageError` for None without an adapter.
        """
        module: Any = self.module
        if weights is None and not self.lora:
            raise UsageError("only a policy with an adapter can switch it off: give lora=…")
        off = module.disable_adapter() if weights is None else swapped(module, weights)
        with off, self.net.aside():
            yield

    def publish(self) -> None:
        """Have the bfloat16 copies with which samples are drawn made again from the masters."""
        self.net.expire()

    def save(self, folder: Path) -> None:
        """Write weights (or adapter), config, generation config and tokenizer."""
        module: Any = self.module
        # peft would otherwise ask the hub about the embeddings of the base model at every save
        options = {"save_embedding_layers": False} if self.lora else {}
        module.save_pretrained(folder, **options)
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        """Read weights (or adapter) back, in place.

        Raises `UsageError` for an absent or truncated file, or another model's; the policy is then
        as it was.
        """
        read = files.load_adapter if self.lora else files.load_model
        read(self.module, Path(folder))
        self.net.expire()

    def settings(self) -> dict[str, Any]:
        """Name, architecture, adapter, precision, temperature, learning rate and seed."""
        return {
            "name": self.name,
            "kind": self.kind,
            "architecture": type(self.net.causal).__name__,
            "parameters": sum(p.numel() for p in self.module.parameters()),
            "lora": self.lora,
            "precision": self.net.precision,
            "temperature": self.temperature,
            "lr": self.lr,
            "seed": self.seed,
        }


def _read_parts(batch: Batch) -> list[list[int]]:
    """Of each sequence, the tokens before the last that a step wants predicted."""
    sequences = batch.inputs["tokens"]
    place = batch.ids["position"]
    if int(place.min()) < 1:
        raise ValueError("the first token of a sequence is predicted by nothing: position 0")
    last = torch.zeros(len(sequences), dtype=torch.long)
    last.scatter_reduce_(0, batch.ids["seq"].cpu(), place.cpu(), "amax")
    return [tokens[: int(n)].tolist() for tokens, n in zip(sequences, last, strict=True)]


def _end_ids(causal: Any, tokenizer: Any) -> frozenset[int]:
    """Every end token of the generation config; else the config's, else the tokenizer's."""
    for holder in (causal.generation_config, causal.config, tokenizer):
        ids = getattr(holder, "eos_token_id", None)
        if ids is not None:
            return frozenset(ids if isinstance(ids, list | tuple) else [ids])
    raise UsageError("the model names no end token: set eos_token_id in its generation config")


def _with_adapter(causal: Any, name: str, rank: int, seed: int) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapted: Any = get_peft_model(causal, config, autocast_adapter_dtype=False)
    written = adapted.peft_config["default"]
    written.base_model_name_or_path = name
    written.revision = str(seed) if name == "tiny" else None
    return adapted
