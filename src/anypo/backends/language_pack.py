"""Packing: sequences that begin alike are encoded once, in rows without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packed:
    """One flat run of tokens, cut into rows that cannot see each other.

    Parameters
    ----------
    tokens, positions : `[T]`, the tokens to encode, and how many tokens stand before each in its
        own sequence. A token occurs once for all the sequences of its row that share it.
    rows : for each row an additive mask `[l, l]`: 0 where a token stands in the past of the other
        (or is itself), −inf elsewhere. `Σ l = T`.
    slots : for each sequence, where its tokens lie among the `T`.
    """

    tokens: Tensor
    positions: Tensor
    rows: list[Tensor]
    slots: list[Tensor]


@dataclass
class _Row:
    """A row under construction: `path` leads through the slots of the sequence added last."""

    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    segments: list[tuple[int, list[int]]] = field(default_factory=list)

    def add(self, sequence: list[int], shared: int) -> list[int]:
        start = len(self.tokens)
        before = self.path[:shared]
        self.tokens += sequence[shared:]
        self.positions += range(shared, len(sequence))
        self.segments.append((start, before))
        self.path = before + list(range(start, len(self.tokens)))
        return self.path

    def mask(self, dtype: torch.dtype) -> Tensor:
        """A token sees what its sequence holds before it: the shared part, then its own."""
        size = len(self.tokens)
        seen = torch.zeros(size, size, dtype=torch.bool)
        ends = [start for start, _ in self.segments[1:]] + [size]
        for (start, before), end in zip(self.segments, ends, strict=True):
            seen[start:end, before] = True
            seen[start:end, start:end] = torch.ones(end - start, end - start).tril().bool()
        return torch.zeros(size, size, dtype=dtype).masked_fill(~seen, -torch.inf)


def shared_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two sequences have in common."""
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return min(len(first), len(second))


def pack(sequences: Sequence[Sequence[int]], reach: float, dtype: torch.dtype) -> Packed:
    """Lay sequences out in rows so that what they share is encoded once.

    Sequences are taken in lexicographic order, so those with a common beginning are neighbours,
    and each joins the row of the one before it. A row is closed when its attention, which grows
    with its square, has cost more than encoding again what the next sequence shares with it:
    `length² > reach · shared`.

    Parameters
    ----------
    sequences : token ids, each at least one.
    reach : how many query-key pairs of attention cost as much as one token in the dense layers.
    dtype : of the masks.
    """
    lists = [list(s) for s in sequences]
    rows: list[_Row] = []
    places: list[tuple[int, list[int]]] = [(0, [])] * len(lists)
    previous: list[int] = []
    for index in sorted(range(len(lists)), key=lists.__getitem__):
        shared = shared_prefix(previous, lists[index])
        if not rows or len(rows[-1].tokens) ** 2 > reach * shared:
            rows.append(_Row())
            shared = 0
        places[index] = (len(rows) - 1, rows[-1].add(lists[index], shared))
        previous = lists[index]
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row.tokens))
    return Packed(
        torch.tensor([t for row in rows for t in row.tokens]),
        torch.tensor([p for row in rows for p in row.positions]),
        [row.mask(dtype) for row in rows],
        [torch.tensor(path, dtype=torch.long) + starts[row] for row, path in places],
    )
