"""What can be trained: the protocol that the engine and the rollouts speak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anypo.core.batch import Batch


class Policy(Protocol):
    """A distribution over steps whose parameters an optimizer may move.

    `module` holds float32 masters; `lr` is the learning rate that suits them; `offers` names the
    model columns that `columns` can compute. One that offers `value` computes the column of every
    owned head, from the state before the step.
    """

    kind: str
    name: str
    module: nn.Module
    lr: float
    offers: frozenset[str]
    temperature: float

    def head(self, outputs: int) -> nn.Module:
        """A fresh head of that many outputs on this policy's features, for example a critic."""
        ...

    def columns(
        self, batch: Batch, needs: frozenset[str], heads: Mapping[str, nn.Module]
    ) -> dict[str, Tensor]:
        """The named model columns, each `[N, …]`, differentiable unless gradients are off."""
        ...

    def costs(self, batch: Batch) -> list[int]:
        """What a forward pass of each `seq` costs, in tokens or rows."""
        ...

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of the trainable parameters, to serve as a reference."""
        ...

    def using(self, weights: Mapping[str, Tensor] | None) -> AbstractContextManager[Any]:
        """Compute under a snapshot inside the block; None is the adapter switched off."""
        ...

    def publish(self) -> None:
        """Refresh the sampler's copy of the weights after an update."""
        ...

    def save(self, folder: Path) -> None:
        """Write the weights in Hugging Face layout (safetensors only)."""
        ...

    def load(self, folder: Path) -> None:
        """Read the weights back, in place."""
        ...

    def settings(self) -> dict[str, Any]:
        """A JSON-able description for the run's record."""
        ...


def evaluated(needs: frozenset[str], heads: Mapping[str, nn.Module]) -> list[str]:
    """The owned heads that some columns ask for: those of their names, and `value` for its next."""
    wanted = needs | ({"value"} if "value_next" in needs else set())
    return sorted(wanted & set(heads))


@dataclass(frozen=True)
class Completion:
    """One sampled answer: the exact token ids, and the log-probabilities they were drawn with."""

    prompt: int
    prompt_ids: Tensor
    token_ids: Tensor
    logp: Tensor
    finished: bool
    text: str
    prompt_text: str


@dataclass(frozen=True)
class Transcript:
    """A text that is given: the tokens that a policy reads, and which of them are to be said.

    Parameters
    ----------
    sequences : token ids, one tensor per network input.
    seq, position, turn : `[n]`, for every token that is to be said, in order: its input, its place
        there, and which turn of the conversation it belongs to.
    """

    sequences: list[Tensor]
    seq: Tensor
    position: Tensor
    turn: Tensor

    @property
    def length(self) -> int:
        """Tokens of the longest input."""
        return max(len(tokens) for tokens in self.sequences)

    def cut(self, most: int) -> Transcript | None:
        """Without the tokens beyond the first `most` of each input; None where nothing is left."""
        kept = self.position < most
        if not bool(kept.any()):
            return None
        used, seq = torch.unique(self.seq[kept], return_inverse=True)
        sequences = [self.sequences[k][:most] for k in used.tolist()]
        return Transcript(sequences, seq, self.position[kept], self.turn[kept])


class LanguagePolicy(Policy, Protocol):
    """A policy whose steps are tokens; `context` is the most that it can read at once."""

    @property
    def context(self) -> int:
        """Most tokens of an input."""
        ...

    def encode(
        self,
        prompt: str | Sequence[Mapping[str, Any]] | None,
        answer: str | Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Transcript:
        """A given answer as tokens to be said; without a prompt, a text that is all said."""
        ...

    def generate(
        self,
        prompts: Sequence[str | list[dict[str, str]]],
        samples: int = 1,
        horizon: int = 256,
        *,
        keys: Sequence[int] = (),
        temperature: float = 1.0,
        seed: int = 0,
    ) -> list[Completion]:
        """`len(prompts) · samples` completions, prompt-major; one key per completion, or a seed."""
        ...

    def generate_text(
        self,
        prompts: str | Sequence[str | list[dict[str, str]]],
        n: int = 1,
        *,
        temperature: float = 1.0,
        max_tokens: int = 256,
        seed: int = 0,
    ) -> list[list[str]]:
        """`n` answers to each prompt, as text."""
        ...

    def decode(self, ids: Tensor) -> str:
        """Text of token ids."""
        ...
