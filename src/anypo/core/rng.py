"""Random streams named by what they are for: no global state, nothing to save, nothing to skip."""

from __future__ import annotations

import hashlib

import torch


def key(seed: int, *words: int | str) -> int:
    """A stable 63-bit number for a seed and the words that say what the stream is for."""
    text = "\x1f".join([str(seed), *map(str, words)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator(seed: int, *words: int | str) -> torch.Generator:
    """A CPU generator seeded by `key(seed, *words)`: the same words give the same stream."""
    return torch.Generator().manual_seed(key(seed, *words))
