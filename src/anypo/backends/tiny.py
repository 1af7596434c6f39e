"""`tiny`: a two-layer Llama over characters, built on the spot, for tests and first looks."""

from __future__ import annotations

import string

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LR, LR_LORA = 3e-3, 1e-2
END = "<end>"
CHARACTERS = sorted(set(string.printable) - set("\r\x0b\x0c\t"))


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character; any other becomes `?`. No chat template."""
    vocabulary = {token: k for k, token in enumerate([END, *CHARACTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    # the wrapper must not know that "?" stands for the unknown: it would skip it when decoding
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END, pad_token=END, model_max_length=512
    )


def model(seed: int = 0) -> LlamaForCausalLM:
    """Two layers of width 64, about 80 000 weights, drawn from the seed alone."""
    config = LlamaConfig(
        vocab_size=len(CHARACTERS) + 1,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    config.anypo_lr = LR
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
