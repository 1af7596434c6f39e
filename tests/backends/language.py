"""What the tests of language policies share: small models of many kinds, and the plain way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
)

from anypo.backends import tiny
from anypo.backends.language_net import Exact
from anypo.backends.transformers import HFPolicy
from anypo.core.batch import Batch
from anypo.core.request import Request
from anypo.rollout import language

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "bos_token_id": None,
}
CONFIGS: dict[str, Any] = {
    "llama, untied": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "llama, tied": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True),
    "granite, scaled logits": GraniteConfig(**SIZES, logits_scaling=3.0),
    "gemma": GemmaConfig(**SIZES, head_dim=8),
    "gpt2": GPT2Config(
        vocab_size=97,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        eos_token_id=0,
        pad_token_id=0,
    ),
    "mistral, window of 5": MistralConfig(**SIZES, sliding_window=5),
}
PROMPTS = ["abc: ", "x", "abc: a much longer prompt than that", "abd", "abc: "]


def make(name: str, precision: str = "float32", **options: Any) -> HFPolicy:
    """A policy whose logits differ by several units, so that a wrong mask or place shows."""
    if name == "tiny":
        causal: Any = tiny.model()
    else:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            causal = AutoModelForCausalLM.from_config(CONFIGS[name])
    with torch.no_grad():
        for p in causal.parameters():
            if p.dim() > 1:
                p.mul_(12)
    return HFPolicy(causal, tiny.tokenizer(), name=name, precision=precision, **options)


class Task:
    """Prompts of unequal length; the score is the number of an answer's characters."""

    kind, name, horizon = "language", "count", 9
    train = [{"prompt": prompt, "place": k} for k, prompt in enumerate(PROMPTS)]
    held_out = train

    def order(self, position: int, seed: int) -> int:
        return position % len(self.train)

    def score(
        self, prompts: Any, completions: Any, rows: Any, completion_ids: Any = None
    ) -> list[float]:
        return [float(len(text)) for text in completions]

    def exact(self, completion: str, row: dict[str, Any]) -> bool:
        return completion == row.get("answer")


def roll(policy: HFPolicy, temperature: float = 1.0, samples: int = 3, seed: int = 0) -> Batch:
    """A batch of the policy's own samples; groups of unequal size, for one sample is dropped."""
    policy.temperature = temperature
    request = Request(
        prompts=len(PROMPTS), samples=samples, horizon=9, temperature=temperature, seed=seed
    )
    batch = language.rollout(request, policy, Task())
    return batch.take(batch.id("traj") != 4)


def plain(policy: HFPolicy, batch: Batch, heads: Mapping[str, Any]) -> dict[str, Tensor]:
    """The columns by one forward pass of the whole model for each sequence, nothing shared."""
    causal: Any = policy.net.causal
    logp, entropy, value, ahead = [], [], [], []
    for s, tokens in enumerate(batch.inputs["tokens"]):
        places = batch.ids["position"][batch.ids["seq"] == s]
        with Exact():
            out = causal(input_ids=tokens[None], output_hidden_states=True, use_cache=False)
        table = torch.log_softmax(out.logits[0] / policy.temperature, dim=-1)[places - 1]
        logp.append(table[torch.arange(len(places)), tokens[places]])
        entropy.append(-(table.exp() * table).sum(-1))
        value.append(heads["value"](out.hidden_states[-1][0][places - 1])[:, 0])
        ahead.append(torch.cat([value[-1][1:], value[-1].new_zeros(1)]))
    parts = {"logp": logp, "entropy": entropy, "value": value, "value_next": ahead}
    return {name: torch.cat(part) for name, part in parts.items()}
