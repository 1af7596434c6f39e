"""Answers to one prompt as a tree of their common beginnings."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from anypo.core.batch import Batch
from anypo.core.errors import UsageError
from anypo.core.piece import Sampling
from anypo.core.request import Request


@dataclass(frozen=True)
class Tree(Sampling):
    """Give every step the ids `node` (what its group's answer was so far) and `edge` (with itself).

    Steps of a group share a node if the tokens before them are the same, and an edge if their own
    token is the same as well; so each answer passes a node, and an edge, once.

    It has no parameters; use as `Groups(8) >> Tree()`. A batch with nodes keeps them. Raises
    `UsageError` where a policy reads no tokens. Shapes: ids `[N]`. Reference: T-SPMO, 2504.20834.
    It is its own piece because no other unit crosses the trajectories of a group.
    """

    def request(self, batch: Batch, wanted: Request, rounds: int) -> Request | None:
        """Nothing more than what is wanted anyway."""
        return None if rounds else wanted

    def mark(self, batch: Batch) -> Batch:
        """The batch with nodes and edges."""
        if "node" in batch.ids:
            return batch
        if "tokens" not in batch.inputs:
            raise UsageError("Tree compares tokens: it needs a language policy")
        edges: dict[tuple[int, int], int] = {}
        nodes, found, now, of = [], [], -1, -1
        columns = [batch.id(k).tolist() for k in ("traj", "group", "seq", "position")]
        for traj, group, seq, position in zip(*columns, strict=True):
            now = now if traj == of else -1 - group  # the root of a group is below all edges
            of = traj
            nodes.append(now)
            now = edges.setdefault((now, int(batch.inputs["tokens"][seq][position])), len(edges))
            found.append(now)
        node = torch.unique(torch.tensor(nodes), return_inverse=True)[1]
        return replace(batch, ids={**batch.ids, "node": node, "edge": torch.tensor(found)})
